"""Atomic writes of files and folders: written under a temporary name in the same folder, then renamed.

The temporary name says which process writes, so that what a killed one left behind is known from what is
being written.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

__all__ = ["atomic_file", "atomic_files", "atomic_folder", "is_part", "remove_leftovers", "remove_whole"]

_MARK = ".stillery-part-"
_WRITER = re.compile(rf"{re.escape(_MARK)}([0-9a-f]{{8}})\.(\d+)-[0-9a-f]{{8}}-(.*)", re.DOTALL)


def is_part(path: Path) -> bool:
    """Return whether a name is a temporary one, of a file or folder that is being written or was when it was killed."""
    return path.name.startswith(_MARK)


def _beside(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Keep the end of the name, which has the suffix; the prefix and a long name together may exceed the limit.
    end = path.name[-40:]
    with suppress(OSError):
        for part in path.parent.glob(f"{_MARK}*"):
            found = _WRITER.fullmatch(part.name)
            if found is not None and found[3] == end and _is_dead(part):
                _remove(part)
    return path.parent / f"{_MARK}{_machine()}.{os.getpid()}-{uuid.uuid4().hex[:8]}-{end}"


@cache
def _machine() -> str:
    """Identify this machine since it was started, and the processes that can be seen from here."""
    seen = [socket.gethostname()]
    with suppress(OSError):
        seen.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        seen.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:8]


def _is_dead(part: Path) -> bool:
    """Return whether a temporary file was written by a process of this machine that has ended; False if unknown."""
    found = _WRITER.fullmatch(part.name)
    if found is None or found[1] != _machine() or os.name == "nt":
        return False
    try:
        os.kill(int(found[2]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        # A process of another user.
        return False
    return False


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
    """Remove the temporary files that killed processes left in a folder.

    In a folder that several processes write to, `older_than` seconds is the age of those whose process is unknown, as
    on another machine; those of ended processes are removed at any age.
    """
    for part in folder.glob(f"{_MARK}*"):
        with suppress(FileNotFoundError):  # another process removes it too
            if not older_than or _is_dead(part) or time.time() - part.stat().st_mtime >= older_than:
                _remove(part)


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part)
    else:
        part.unlink(missing_ok=True)
