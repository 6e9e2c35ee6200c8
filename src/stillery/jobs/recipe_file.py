"""Load a user-defined recipe from a function in a Python file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from stillery.errors import UserError
from stillery.near_names import did_you_mean
from stillery.recipe import Recipe

__all__ = ["load_recipe"]


def load_recipe(where: str) -> Recipe:
    """Return the recipe that `FILE.py:FUNCTION` returns; this executes the file, so only the user may have named it."""
    file, colon, name = where.rpartition(":")
    path = Path(file)
    if not colon or not name or path.suffix != ".py":
        raise UserError(f"--recipe {where}: give FILE.py:FUNCTION")
    if not path.is_file():
        raise UserError(f"--recipe {where}: no such file: {path}{did_you_mean(path)}")
    spec = importlib.util.spec_from_file_location("stillery_user_recipe", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        function = getattr(module, name, None)
        if not callable(function):
            raise UserError(f"--recipe {where}: {path} has no function {name!r}")
        recipe = function()
    except UserError:
        raise
    except Exception as error:  # a user's code may fail in any way; report it in one line
        raise UserError(f"--recipe {where}: it failed with {type(error).__name__}: {error}") from None
    if not isinstance(recipe, Recipe):
        raise UserError(f"--recipe {where}: {name} returned {type(recipe).__name__}, not a Recipe")
    return recipe
