"""What a mistyped path may have meant: what is there under a name like it."""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Callable
from pathlib import Path

from stillery.errors import UserError

__all__ = ["did_you_mean", "missing_file", "near_path"]

_LOOKED_AT = 5_000
"""Names of a folder that are compared; a folder may hold millions."""


def near_path(path: Path, wanted: Callable[[Path], bool] = Path.exists, *, like: float = 0.7) -> Path | None:
    """The path nearest to one that is not there: a name like its own, in its folder or in one of a name like that.

    `like` is how near, as the share of letters that two names have in common and in order.
    """
    folder = path.parent
    if not folder.is_dir():
        near = near_path(folder, Path.is_dir, like=like) if folder != path else None
        if near is None:
            return None
        folder = near
        if wanted(folder / path.name):
            return folder / path.name
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in itertools.islice(entries, _LOOKED_AT) if not entry.name.startswith("."))
    said = path.name.casefold()
    alike = {name: difflib.SequenceMatcher(None, name.casefold(), said).ratio() for name in names}
    # `reviews.csv` may be `reviews.parquet`.
    alike |= {name: max(alike[name], like) for name in names if Path(name).stem.casefold() == Path(said).stem}
    for name in sorted(names, key=lambda name: -alike[name]):
        if alike[name] < like:
            break
        if wanted(folder / name):
            return folder / name
    return None


def did_you_mean(path: Path, wanted: Callable[[Path], bool] = Path.exists, *, like: float = 0.7) -> str:
    """A hint to put behind an error about a path that is not there; empty where nothing is called like it."""
    try:
        found = near_path(path, wanted, like=like)
    except OSError:
        return ""
    return "" if found is None else f"; did you mean {str(found)!r}?"


def missing_file(path: Path) -> UserError:
    """The error of a file that is not there."""
    return UserError(f"no such file: {path}{did_you_mean(path)}")
