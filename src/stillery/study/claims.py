"""Which worker runs which cell: claims on a shared disk, without a coordinator and without comparing clocks.

A cell's claims are files `1.json`, `2.json`, ... that are never changed or removed; the last one counts. It names a
worker, or nobody. To claim a cell is to make the next file, which the file system lets exactly one process do (a hard
link, or exclusive creation where there are none). So of all that find a cell free, or its worker dead, one gets it.

A worker's heartbeat is a counter that it raises every few seconds. Another worker calls it dead when the counter has
stood still for `dead` seconds by its own monotonic clock, or at once where both run on one machine and the process is
gone. A worker that was stopped for long and finds its cell taken ends itself, so that two never continue one cell.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["LOST", "Claims", "Pace", "this_place"]

LOST = 75
"""The exit code of a worker that finds its cell taken by another."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds between two heartbeats, and without one until a worker on another machine counts as dead."""

    beat: float = 5.0
    dead: float = 120.0


def this_place() -> str:
    """The machine, since it was started, and its table of processes: where a process number means something."""
    found = [socket.gethostname()]
    for read in (_boot, lambda: str(Path("/proc/self/ns/pid").readlink())):
        with suppress(OSError):
            found.append(read())
    return " ".join(found)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def _started(process: int) -> str | None:
    """When a process began, as the system counts; None of one that is gone or has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


@dataclass(eq=False)
class Claims:
    """The claims of one worker in the folder of a study.

    Attributes:
        folder: the folder of all claims.
        pace: how often it beats, and when others count as dead.
        lost: what is done when another has taken the cell that this worker is at.
    """

    folder: Path
    pace: Pace = field(default_factory=Pace)
    lost: Callable[[], None] = lambda: os._exit(LOST)
    owner: str = field(default_factory=lambda: uuid.uuid4().hex)
    _held: dict[str, int] = field(default_factory=dict)
    _seen: dict[str, tuple[Any, float]] = field(default_factory=dict)
    _count: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Claims:
        self._beat()
        self._thread = threading.Thread(target=self._beating, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for cell in list(self._held):
            with suppress(OSError):
                self.release(cell)
        with suppress(OSError):
            self._heart(self.owner).unlink()

    def take(self, cell: str) -> bool:
        """Claim a cell that nobody has, or whose worker is dead; exactly one of all that try gets it."""
        number, note = self._last(cell)
        if number and note.get("owner") is not None and not self._is_dead(note):
            return False
        if not self._write(cell, number + 1, self.owner):
            return False
        self._held[cell] = number + 1
        return True

    def release(self, cell: str) -> None:
        """Give a cell back: it is finished, has failed, or is left to others."""
        number = self._held.pop(cell)
        self._write(cell, number + 1, None)

    def holder(self, cell: str) -> str | None:
        """The worker that is at a cell, as far as this one knows."""
        number, note = self._last(cell)
        held = number and note.get("owner") is not None and not self._is_dead(note)
        return f"process {note.get('process')} on {note.get('host')}" if held else None

    def held_by(self, worker: int | str | None, cells: Sequence[str]) -> str | None:
        """The cell that a worker had when it ended, if any: a process of this machine, or a worker by its name."""
        for cell in cells:
            _, note = self._last(cell)
            here = note.get("process") == worker and note.get("place") == this_place()
            if note.get("owner") is not None and (here or note["owner"] == worker):
                return cell
        return None

    def has_begun(self, worker: str) -> bool:
        """Whether a worker has shown that it is at work, and has not ended as one does that is done."""
        return self._heart(worker).exists()

    def _last(self, cell: str) -> tuple[int, dict[str, Any]]:
        """The last claim of a cell, by its number; 0 and nothing where there is none."""
        try:
            numbers = [int(path.stem) for path in (self.folder / cell).iterdir() if path.stem.isdigit()]
        except FileNotFoundError:
            return 0, {}
        if not numbers:
            return 0, {}
        try:
            note = json.loads((self.folder / cell / f"{max(numbers)}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            # Being written just now, where there are no hard links; somebody has it.
            note = {"owner": f"{cell} {max(numbers)}"}
        return max(numbers), note

    def _write(self, cell: str, number: int, owner: str | None) -> bool:
        """Make a claim; False where another process has made it first."""
        place = self.folder / cell / f"{number}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        note = {"owner": owner, "place": this_place(), "host": socket.gethostname(), "process": os.getpid(),
                "started": _started(os.getpid())}  # fmt: skip
        text = json.dumps(note)
        part = place.parent / f"{self.owner}.part"
        part.write_text(text, encoding="utf-8")
        try:
            os.link(part, place)
        except FileExistsError:
            # A network file system may have made it, lost its answer and asked again.
            return part.stat().st_nlink == 2
        except OSError:
            # A file system without hard links.
            return _created(place, text)
        finally:
            part.unlink(missing_ok=True)
        return True

    def _is_dead(self, note: dict[str, Any]) -> bool:
        """Whether the worker that a claim names has died."""
        if note.get("owner") == self.owner:
            return False
        if note.get("place") == this_place() and note.get("started") is not None:
            return bool(_started(int(note["process"])) != note["started"])
        count, now = self._counter(note.get("owner", "")), time.monotonic()
        before, since = self._seen.setdefault(str(note.get("owner")), (count, now))
        if count != before:
            self._seen[str(note.get("owner"))] = (count, now)
            return False
        return bool(now - since > self.pace.dead)

    def _counter(self, owner: str) -> str | None:
        with suppress(OSError):
            return self._heart(owner).read_text(encoding="utf-8")
        return None

    def _heart(self, owner: str) -> Path:
        return self.folder / f"{owner}.heartbeat"

    def _beat(self) -> None:
        self._count += 1
        part = self.folder / f"{self.owner}.part"
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_text(str(self._count), encoding="utf-8")
            part.replace(self._heart(self.owner))

    def _beating(self) -> None:
        while not self._stop.wait(self.pace.beat):
            for cell, number in list(self._held.items()):
                if self._last(cell)[0] > number and self._held.get(cell) == number:
                    self.lost()
            self._beat()


def _created(place: Path, text: str) -> bool:
    try:
        descriptor = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return True
