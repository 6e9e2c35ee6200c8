"""The cache folder: what can be worked out again, kept because that takes long.

Each kind of thing (`tokens`) has a folder of its own, and in it a folder per entry, named by what the entry was made
from. An entry holds arrays and a `meta.json`; how it is read and written is in `cached_arrays.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stillery.atomic import remove_leftovers
from stillery.data.locks import locked
from stillery.faults import Fault
from stillery.progress import say

__all__ = ["META", "Cache", "Entry", "find_cache", "say_once"]

META = "meta.json"
KEY = re.compile("[0-9a-f]{64}")
GIGABYTE = 10**9
DEFAULT_LIMIT = 5.0
# A part this old belongs to a process that was killed: no entry takes that long to write.
ABANDONED_SECONDS = 24 * 3600


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One thing that is kept: its folder, its size, when it was last used (seconds since 1970) and what it is."""

    kind: str
    path: Path
    bytes: int
    used: float
    about: str


@dataclass(frozen=True, kw_only=True)
class Cache:
    """A cache folder and the most bytes it may hold of a kind."""

    folder: Path
    limit: int

    def place(self, kind: str, key: str) -> Path:
        """The folder of an entry, there or not; `key` is a sha256 in hexadecimal."""
        return self.folder / kind / key

    def entries(self) -> list[Entry]:
        """What is kept, the most recently used first."""
        # Only folders named by a key are ours: the user may have named a folder that holds other things too.
        places = (path for path in self.folder.glob("*/*") if KEY.fullmatch(path.name))
        found = [entry for entry in map(_entry, places) if entry is not None]
        return sorted(found, key=lambda entry: entry.used, reverse=True)

    def trim(self, kind: str) -> list[Entry]:
        """Remove the least recently used entries of a kind until the rest is within the limit; return what was."""
        kept, removed = 0, []
        for entry in self.entries():
            if entry.kind != kind:
                continue
            kept += entry.bytes
            if kept > self.limit:
                removed.append(entry)
        self._remove(removed)
        return removed

    def clear(self) -> list[Entry]:
        """Remove every entry that no process holds, and return those that are gone."""
        found = self.entries()
        for entry in found:
            with suppress(OSError), locked([entry.path, *entry.path.iterdir()], wait=False) as free:
                if free:
                    self._remove([entry])
        return [entry for entry in found if not entry.path.exists()]

    def _remove(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            # Another process may be faster, or may not let go of a file; what stays is tried again next time.
            shutil.rmtree(entry.path, ignore_errors=True)
        for kind in self.folder.glob("*/"):
            with suppress(OSError):
                remove_leftovers(kind, older_than=ABANDONED_SECONDS)


def find_cache() -> Cache | None:
    """The user's cache, or None when it is turned off.

    It is `$STILLERY_CACHE`, else `$XDG_CACHE_HOME/stillery`, else `~/.cache/stillery`; `STILLERY_CACHE=off` turns it
    off. `$STILLERY_CACHE_LIMIT` is the most it may hold of each kind, in gigabytes; what teachers showed has a limit of
    its own (`--cache-limit`).
    """
    named = os.environ.get("STILLERY_CACHE", "").strip()
    if named.casefold() == "off":
        return None
    general = os.environ.get("XDG_CACHE_HOME", "").strip() or "~/.cache"
    try:
        folder = Path(named or Path(general) / "stillery").expanduser()
    except RuntimeError:
        # There is no home folder, as for some services.
        return None
    return Cache(folder=folder, limit=_limit())


@cache
def say_once(line: str) -> None:
    """Say a line on stderr the first time it comes up."""
    say(line)


def _limit() -> int:
    written = os.environ.get("STILLERY_CACHE_LIMIT", "").strip() or str(DEFAULT_LIMIT)
    try:
        gigabytes = float(written)
        return int(max(gigabytes, 0) * GIGABYTE)
    except (ValueError, OverflowError):
        raise Fault(f"STILLERY_CACHE_LIMIT={written}: give a number of gigabytes, such as 5") from None


def _entry(path: Path) -> Entry | None:
    """What is in an entry's folder; None when it went away meanwhile."""
    try:
        size = sum(file.stat().st_size for file in path.iterdir())
        used = path.stat().st_mtime
    except OSError:
        return None
    try:
        about = str(json.loads((path / META).read_text(encoding="utf-8"))["about"])
    except (OSError, ValueError, KeyError, TypeError):
        about = "damaged"
    return Entry(kind=path.parent.name, path=path, bytes=size, used=used, about=about)
