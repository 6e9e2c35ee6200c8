"""Parts: the plain functions that methods are composed of (pairings, distances, projections, ...)."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from stillery.errors import UserError
from stillery.words import PARTS, plugins

__all__ = ["load"]


@cache
def load() -> None:
    """Import all modules of parts, so that every part is declared: stillery's own and those of installed packages."""
    for info in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{info.name}")
    for plugin in plugins(PARTS):
        try:
            importlib.import_module(plugin.module)
        except UserError:
            raise
        except Exception as error:  # a package's own code may raise anything
            raise UserError(
                f"the installed parts {plugin.name} ({plugin.module}) cannot be loaded: {type(error).__name__}: {error}"
            ) from None
