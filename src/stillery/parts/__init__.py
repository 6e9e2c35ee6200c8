"""Parts: the plain functions that recipes are composed of; no part imports another."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from stillery.errors import UserError
from stillery.words import PARTS, plugins

__all__ = ["load"]


@cache
def load() -> None:
    """Have every part declared: those of this room, and those of packages that are installed to provide more."""
    for info in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{info.name}")
    for plugin in plugins(PARTS):
        try:
            importlib.import_module(plugin.module)
        except UserError:
            raise
        except Exception as error:  # code of others may fail in any way; it is said in one line
            raise UserError(
                f"the installed parts {plugin.name} ({plugin.module}) cannot be loaded: {type(error).__name__}: {error}"
            ) from None
