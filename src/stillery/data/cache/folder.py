"""The cache folder: results that are slow to recompute.

Each kind of entry (such as `tokens`) has its own folder, with a subfolder per entry, named by a hash of what the entry
was computed from. An entry holds arrays and a `meta.json`; `arrays.py` reads and writes it.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stillery.atomic import remove_leftovers, remove_whole
from stillery.data.cache.locks import unused
from stillery.errors import UserError
from stillery.progress import say

__all__ = ["META", "Cache", "Entry", "find_cache", "say_once"]

META = "meta.json"
KEY = re.compile("[0-9a-f]{64}")
GIGABYTE = 10**9
DEFAULT_LIMIT = 5.0
DEFAULT_WAIT = 60.0
# A temporary file of an unknown process, as of another machine, this old was abandoned: none is written that long.
ABANDONED_SECONDS = 24 * 3600


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A cache entry: its folder, size, time of last use (seconds since 1970) and description."""

    kind: str
    path: Path
    bytes: int
    used: float
    about: str


@dataclass(frozen=True, kw_only=True)
class Cache:
    """A cache folder, its limit in bytes per kind, and the seconds to wait for another process without progress."""

    folder: Path
    limit: int
    wait: float = DEFAULT_WAIT

    def place(self, kind: str, key: str) -> Path:
        """The folder of an entry, whether it exists or not; `key` is a sha256 in hexadecimal."""
        return self.folder / kind / key

    def entries(self) -> list[Entry]:
        """All entries, the most recently used first."""
        # Only folders named by a key are entries: the user may have chosen a folder with other contents.
        places = (path for path in self.folder.glob("*/*") if KEY.fullmatch(path.name))
        found = [entry for entry in map(_entry, places) if entry is not None]
        return sorted(found, key=lambda entry: entry.used, reverse=True)

    def trim(self, kind: str) -> list[Entry]:
        """Remove the least recently used entries of a kind until the rest is within the limit; return those removed."""
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
        """Remove every entry that no process has locked, and return those removed."""
        found = self.entries()
        for entry in found:
            self.remove_unused(entry)
        self.remove_abandoned()
        return [entry for entry in found if not entry.path.exists()]

    def remove_unused(self, entry: Entry) -> None:
        """Remove an entry, unless a process is writing or reading it."""
        with suppress(OSError), unused(entry.path) as free:
            if free:
                remove_whole(entry.path)

    def _remove(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            # Another process may be faster, or may keep a file open; what remains is tried again next time.
            shutil.rmtree(entry.path, ignore_errors=True)
        self.remove_abandoned()

    def remove_abandoned(self) -> None:
        """Remove the temporary files and folders of killed processes."""
        with suppress(OSError):
            for kind in [place for place in self.folder.iterdir() if place.is_dir()]:
                entries = (place for place in kind.iterdir() if KEY.fullmatch(place.name))
                for folder in (kind, *entries):
                    with suppress(OSError):
                        remove_leftovers(folder, older_than=ABANDONED_SECONDS)


def find_cache() -> Cache | None:
    """The user's cache, or None if it is turned off.

    It is `$STILLERY_CACHE`, else `$XDG_CACHE_HOME/stillery`, else `~/.cache/stillery`; `STILLERY_CACHE=off` turns it
    off. `$STILLERY_CACHE_LIMIT` is its limit for each kind of entry, in gigabytes; the teacher cache has a limit of its
    own (`--cache-limit`). `$STILLERY_CACHE_WAIT` is how many seconds a run waits for another without progress.
    """
    named = os.environ.get("STILLERY_CACHE", "").strip()
    if named.casefold() == "off":
        return None
    general = os.environ.get("XDG_CACHE_HOME", "").strip() or "~/.cache"
    try:
        folder = Path(named or Path(general) / "stillery").expanduser()
    except RuntimeError:
        # No home folder, as for some services.
        return None
    limit = _number("STILLERY_CACHE_LIMIT", DEFAULT_LIMIT, "gigabytes, such as 5") * GIGABYTE
    wait = _number("STILLERY_CACHE_WAIT", DEFAULT_WAIT, "seconds, such as 60")
    return Cache(folder=folder, limit=int(limit), wait=wait)


@cache
def say_once(line: str) -> None:
    """Print a line on stderr the first time it occurs."""
    say(line)


def _number(name: str, usual: float, kind: str) -> float:
    """The number in an environment variable, at least 0."""
    written = os.environ.get(name, "").strip() or str(usual)
    with suppress(ValueError):
        if math.isfinite(number := float(written)):
            return max(number, 0.0)
    raise UserError(f"{name}={written}: give a number of {kind}")


def _entry(path: Path) -> Entry | None:
    """Read the entry in a folder; None if it was removed meanwhile."""
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
