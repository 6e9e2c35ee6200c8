"""Suggestions for mistyped paths: existing files and folders with similar names."""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Callable
from pathlib import Path

from stillery.errors import UserError

__all__ = ["did_you_mean", "missing_file", "near_path"]

_LOOKED_AT = 5_000
"""The maximum number of names of a folder that are compared; a folder may hold millions."""


def near_path(path: Path, wanted: Callable[[Path], bool] = Path.exists, *, like: float = 0.7) -> Path | None:
    """Return the existing path most similar to a missing one: in its folder, or in one with a similar name.

    `like` is the minimum similarity, the share of letters that two names have in common and in order.
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
    """Return a hint to append to the error about a missing path; empty if no name is similar."""
    try:
        found = near_path(path, wanted, like=like)
    except OSError:
        return ""
    return "" if found is None else f"; did you mean {str(found)!r}?"


def missing_file(path: Path) -> UserError:
    """Return the error for a missing file."""
    return UserError(f"no such file: {path}{did_you_mean(path)}")
