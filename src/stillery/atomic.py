"""Files and folders that appear whole or not at all: written beside their place, then renamed."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["atomic_file", "atomic_folder", "remove_leftovers", "remove_whole"]

_MARK = ".stillery-part-"


def _beside(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # The end of the name says the format; all of a long name would be too long with the mark before it.
    return path.parent / f"{_MARK}{uuid.uuid4().hex[:8]}-{path.name[-40:]}"


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to; it takes the place of `path` when the block ends well, else it is removed."""
    part = _beside(path)
    try:
        yield part
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path, *, keep: bool = False) -> Iterator[Path]:
    """A temporary folder to fill; it takes the place of `path` when the block ends well, else it is removed.

    With `keep` a folder that is there already stays, whoever wrote it; at no moment is there none.
    """
    part = _beside(path)
    part.mkdir()
    try:
        yield part
        for file in part.rglob("*"):
            if file.is_file():
                with file.open("rb+") as written:
                    os.fsync(written.fileno())
        if keep:
            _rename_unless_there(part, path)
        elif path.exists():
            old = _beside(path)
            path.rename(old)
            part.rename(path)
            shutil.rmtree(old)
        else:
            part.rename(path)
    finally:
        if part.exists():
            shutil.rmtree(part)


def _rename_unless_there(part: Path, path: Path) -> None:
    try:
        part.rename(path)
    except OSError:
        # No folder is renamed onto one with files in it.
        if not path.exists():
            raise


def remove_whole(path: Path) -> None:
    """Remove a folder so that nobody finds half of it: it is there, or it is not."""
    part = _beside(path)
    path.rename(part)
    shutil.rmtree(part, ignore_errors=True)


def remove_leftovers(folder: Path, older_than: float = 0.0) -> None:
    """Remove what a killed process left half-written in a folder, if it is older than so many seconds.

    In a folder that several processes write to, a young part may be one that is still being written.
    """
    for part in folder.glob(f"{_MARK}*"):
        if older_than and time.time() - part.stat().st_mtime < older_than:
            continue
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()
