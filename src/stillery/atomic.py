"""Atomic writes of files and folders: written under a temporary name in the same folder, then renamed."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["atomic_file", "atomic_files", "atomic_folder", "remove_leftovers", "remove_whole"]

_MARK = ".stillery-part-"


def _beside(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Keep the end of the name, which has the suffix; the prefix and a long name together may exceed the limit.
    return path.parent / f"{_MARK}{uuid.uuid4().hex[:8]}-{path.name[-40:]}"


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it is renamed to `path` when the block succeeds, else removed."""
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
    """Yield a temporary folder to fill; it is renamed to `path` when the block succeeds, else removed.

    With `keep` an existing folder is kept, even one written meanwhile; `path` is then missing at no moment.
    """
    part = _beside(path)
    part.mkdir()
    try:
        yield part
        _to_disk(part)
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


@contextmanager
def atomic_files(folder: Path, *, last: str) -> Iterator[Path]:
    """Yield a temporary folder to fill; its files are moved into `folder` when the block succeeds, else removed.

    An older file `last` is removed before the first move, and the new one is moved last: if it exists, all files do.
    Other files of `folder` stay.
    """
    part = _beside(folder / last)
    part.mkdir()
    try:
        yield part
        files = _to_disk(part)
        (folder / last).unlink(missing_ok=True)
        for file in sorted(files, key=lambda file: file == part / last):
            place = folder / file.relative_to(part)
            place.parent.mkdir(parents=True, exist_ok=True)
            file.replace(place)
    finally:
        shutil.rmtree(part)


def _to_disk(folder: Path) -> list[Path]:
    """Flush all files of a folder to disk (fsync) and return them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    for file in files:
        with file.open("rb+") as written:
            os.fsync(written.fileno())
    return files


def _rename_unless_there(part: Path, path: Path) -> None:
    try:
        part.rename(path)
    except OSError:
        # Renaming onto a folder with files fails.
        if not path.exists():
            raise


def remove_whole(path: Path) -> None:
    """Remove a folder atomically, so that no other process sees it half removed."""
    part = _beside(path)
    path.rename(part)
    shutil.rmtree(part, ignore_errors=True)


def remove_leftovers(folder: Path, older_than: float = 0.0) -> None:
    """Remove the temporary files that killed processes left in a folder, if they are older than this many seconds.

    In a folder that several processes write to, a recent one may still be being written.
    """
    for part in folder.glob(f"{_MARK}*"):
        if older_than and time.time() - part.stat().st_mtime < older_than:
            continue
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()
