"""Checks of a job's output paths, made before any long computation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from stillery.errors import UserError

__all__ = ["check_file", "check_folder", "check_new"]


def check_file(path: Path, option: str, data: str | Path | None = None, *, overwrite: bool = False) -> None:
    """Raise UserError for an output file that cannot be written, has no known format, is the input file, or exists.

    With `overwrite` it may exist.
    """
    if data is not None and _is_same(path, Path(data)):
        raise UserError(f"{option} {path} is the input file: give another name")
    # Not at the top: a run's folder is checked without importing pyarrow.
    from stillery.data.readers.writer import written_format

    written_format(path)
    if not overwrite:
        check_new([path], option)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UserError(f"{path}: cannot be written (no permission for the folder {path.parent}); give another place")


def check_new(files: Sequence[Path], option: str) -> None:
    """Raise UserError for output files that exist already."""
    there = [str(path) for path in files if os.path.lexists(path)]
    if there:
        raise UserError(
            f"{option}: {', '.join(there)} is there already: give another name, or --overwrite to replace it"
        )


def check_folder(path: Path, option: str) -> None:
    """Raise UserError for a path where no folder can be made or written to."""
    try:
        nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    except OSError as error:
        raise UserError(f"{option} {path} cannot be read ({error.strerror or error}): give another folder") from None
    if not nearest.is_dir():
        raise UserError(f"{option} {path}: {nearest} is a file; give a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UserError(f"{option} {path}: {nearest} cannot be written to; give another folder")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
