"""Cache entries of named arrays, memory-mapped and verified by checksum before use."""

from __future__ import annotations

import hashlib
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
    """Arrays by name (read-only memory maps if read from the cache) and JSON metadata about them."""

    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]


def read_arrays(cache: Cache, kind: str, key: str) -> Arrays | None:
    """Read the arrays of an entry; None if it does not exist or is damaged, in which case it is reported and removed.

    Every byte is read once to compare checksums, about 0.1 s for the 75 MB of MNLI's tokens.
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
    files = dict(meta["files"])
    for name, wanted in files.items():
        if _stamp(place / name) != wanted:
            raise ValueError(f"{name} is not what was written")
    # Plain views of the memory maps: numpy's memmap class is slower to index.
    arrays = {Path(name).stem: np.asarray(np.load(place / name, mmap_mode="r")) for name in files}
    return Arrays(arrays=arrays, facts=dict(meta["facts"]))


def _stamp(file: Path) -> dict[str, Any]:
    """The size and checksum of a file."""
    with file.open("rb") as opened:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(opened, "sha256").hexdigest()}


def _checksum(meta: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
