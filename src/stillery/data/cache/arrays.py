"""Cache entries of named arrays, read into memory and verified by checksum there."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache as memoised
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.atomic import atomic_folder
from stillery.data.cache.folder import META, Cache, say_once
from stillery.progress import say

__all__ = ["Arrays", "read_arrays", "write_arrays"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrays:
    """Arrays by name (read-only if read from the cache) and JSON metadata about them."""

    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]


def read_arrays(cache: Cache, kind: str, key: str) -> Arrays | None:
    """Read the arrays of an entry; None if it does not exist or is damaged, in which case it is reported and removed.

    The arrays are in memory, as they are where they were computed: no change of the files reaches who uses them.
    Reading and comparing checksums takes about 0.1 s for the 75 MB of MNLI's tokens.
    """
    place = cache.place(kind, key)
    _tidy(cache)
    # Checked first: an entry that another process is just writing is missing, not damaged.
    if not place.exists():
        return None
    try:
        found = _read(place)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # Another process may have removed it.
        if place.exists():
            say(f"the cache entry {place} is damaged; it is made again")
            shutil.rmtree(place, ignore_errors=True)
        return None
    with suppress(OSError):
        # The time of last use decides what is evicted; a read-only cache stays as it is.
        os.utime(place)
    return found


@memoised
def _tidy(cache: Cache) -> None:
    """Remove what killed processes left in a cache, once per process."""
    cache.remove_abandoned()


def write_arrays(cache: Cache, kind: str, key: str, kept: Arrays, about: str, *, replace: bool = False) -> bool:
    """Write arrays under a key and trim the cache; a cache that cannot be written is reported once, not raised.

    If another process was faster, its entry stays: it holds the same. An entry that grows is written with `replace`.
    Returns whether the entry exists now.
    """
    place = cache.place(kind, key)
    if sum(array.nbytes for array in kept.arrays.values()) > cache.limit:
        return False
    try:
        with atomic_folder(place, keep=not replace) as part:
            for name, array in kept.arrays.items():
                np.save(part / f"{name}.npy", array, allow_pickle=False)
            files = {file.name: _stamp(file) for file in sorted(part.iterdir())}
            meta = {"about": about, "facts": dict(kept.facts), "files": files}
            written = json.dumps(meta | {"sha256": _checksum(meta)}, indent=1)
            (part / META).write_text(written, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        say_once(f"the cache folder {cache.folder} cannot be written ({reason}); continuing without it")
        return False
    cache.trim(kind)
    return place.exists()


def _read(place: Path) -> Arrays:
    meta = json.loads((place / META).read_text(encoding="utf-8"))
    if meta.pop("sha256") != _checksum(meta):
        raise ValueError(f"{META} is not what was written")
    arrays = {Path(name).stem: _array(place / name, wanted) for name, wanted in meta["files"].items()}
    return Arrays(arrays=arrays, facts=dict(meta["facts"]))


def _array(file: Path, wanted: Mapping[str, Any]) -> NDArray[Any]:
    """Read a `.npy` file that has to have this size and checksum.

    It is not memory-mapped: reading a map of a file that somebody cuts short kills the process (SIGBUS).
    """
    content = file.read_bytes()
    if {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} != wanted:
        raise ValueError(f"{file.name} is not what was written")
    header = io.BytesIO(content)
    if np.lib.format.read_magic(header) != (1, 0):
        raise ValueError(f"{file.name} is of another format")
    shape, by_column, dtype = np.lib.format.read_array_header_1_0(header)
    # A view of what was read, which is a second copy's worth of memory less than `numpy.load`.
    values = np.frombuffer(content, dtype, offset=header.tell())
    return values.reshape(shape, order="F" if by_column else "C")


def _stamp(file: Path) -> dict[str, Any]:
    """The size and checksum of a file."""
    with file.open("rb") as opened:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(opened, "sha256").hexdigest()}


def _checksum(meta: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
