"""Files and folders that appear whole or not at all: written beside their place, then renamed."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["atomic_file", "atomic_folder", "remove_leftovers"]

_MARK = ".stillery-part-"


def _beside(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.parent / f"{_MARK}{uuid.uuid4().hex[:8]}-{path.name}"


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
def atomic_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to fill; it takes the place of `path` when the block ends well, else it is removed."""
    part = _beside(path)
    part.mkdir()
    try:
        yield part
        for file in part.rglob("*"):
            if file.is_file():
                with file.open("rb+") as written:
                    os.fsync(written.fileno())
        if path.exists():
            old = _beside(path)
            path.rename(old)
            part.rename(path)
            shutil.rmtree(old)
        else:
            part.rename(path)
    finally:
        if part.exists():
            shutil.rmtree(part)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process left half-written in a folder."""
    for part in folder.glob(f"{_MARK}*"):
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()
