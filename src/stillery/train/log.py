"""The training log of a run: JSON Lines, with the same numbers sent to experiment trackers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from stillery.atomic import atomic_file
from stillery.progress import say
from stillery.train.trackers import Logged, Trackers

__all__ = ["RunLog", "read_events"]

_MOST_EVENTS = 50_000
"""Events of training steps that are read of a log; ten times as many take a gigabyte."""

_END, _AT_ONCE = 1 << 24, 1 << 20
"""Bytes at the end of a log that are looked at first when a run is resumed; and bytes copied at a time."""


def _flat(event: dict[str, Any], prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for key, value in event.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[f"{prefix}{key}"] = float(value)
    return found


class RunLog:
    """Writes the events of a run as one JSON object per line, and their numbers to the requested trackers."""

    def __init__(
        self,
        folder: Path,
        *,
        accelerator: Accelerator,
        trackers: Sequence[str] = (),
        after_step: int | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """Open the log; when a run resumes after a step, entries beyond that step are dropped.

        `about` are the run's settings for trackers.
        """
        self.path = folder / "log.jsonl"
        dropped = set() if after_step is None or not self.path.exists() else _cut(self.path, after_step)
        self._file = self.path.open("a", encoding="utf-8")
        self._trackers = None
        if trackers:
            self._trackers = Trackers(
                accelerator, trackers, folder, about=about or {}, after_step=after_step, dropped=dropped
            )

    def write(self, event: str, step: int, **values: Any) -> None:
        """Log one event."""
        self._file.write(json.dumps({"event": event, "step": step, **values}) + "\n")
        self._file.flush()
        if self._trackers is not None:
            self._trackers.write(event, step, _flat(values))

    def close(self) -> None:
        """Flush and close."""
        self._file.close()
        if self._trackers is not None:
            self._trackers.close()


def read_events(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Read the events of a log; return them, and how many lines are damaged and were left out.

    The last line, which a killed process may have been writing, does not count as damaged. Of a long log only some
    training steps are kept, evenly spaced, with the first and the last of each stage.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        number = sum(1 for _ in file)
    every, events, damaged = -(-number // _MOST_EVENTS), _Kept(), 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for place, line in enumerate(file, 1):
            event = _event(line)
            if event is not None:
                events.add(event, wanted=place % every == 0)
            elif line.strip() and place < number:
                damaged += 1
    return events.all(), damaged


class _Kept:
    """Events that are kept of a log, in its order."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._passed: dict[str, Any] | None = None
        self._stage: str | None = None

    def add(self, event: dict[str, Any], *, wanted: bool) -> None:
        """Keep an event, unless it is one of a training step that is neither wanted nor at an end of its stage."""
        if event["event"] != "train" or event["stage"] != self._stage:
            self._keep_passed()
        if event["event"] != "train":
            self._events.append(event)
            return
        if event["stage"] != self._stage:
            self._stage, wanted = event["stage"], True
        self._passed = None if wanted else event
        if wanted:
            self._events.append(event)

    def all(self) -> list[dict[str, Any]]:
        """Return what was kept."""
        self._keep_passed()
        return self._events

    def _keep_passed(self) -> None:
        if self._passed is not None:
            self._events.append(self._passed)
            self._passed = None


def _event(line: str | bytes) -> dict[str, Any] | None:
    """The event of a line; None if it is damaged."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if _is_event(event) else None


def _is_event(event: Any) -> bool:
    """Return whether this is an event as a run writes it."""
    if not isinstance(event, dict) or not isinstance(event.get("event"), str) or type(event.get("step")) is not int:
        return False
    shapes: dict[str, dict[str, Any]]
    shapes = {"train": {"stage": str, "loss": (int, float), "terms": dict}, "dev": {"metrics": dict},
              "guards": {"stage": str}}  # fmt: skip
    return all(isinstance(event.get(name), kind) for name, kind in shapes.get(event["event"], {}).items())


def _cut(path: Path, after_step: int) -> set[Logged]:
    """Remove the events beyond a step from a log, and return them; they are at its end, as steps only rise."""
    kept: list[bytes] = []
    dropped: set[Logged] = set()
    damaged = 0
    start, lines = _end_of(path, after_step)
    for place, line in enumerate(lines, 1):
        event = _event(line)
        if event is None:
            damaged += bool(line.strip()) and place < len(lines)
        elif event["step"] <= after_step:
            kept.append(line.rstrip(b"\r\n") + b"\n")
        else:
            dropped.add((event["event"], event["step"]))
    if damaged:
        say(f"{path}: {damaged} damaged {'line is' if damaged == 1 else 'lines are'} left out")
    if b"".join(kept) == b"".join(lines):
        return dropped
    with atomic_file(path) as part, path.open("rb") as before, part.open("wb") as after:
        for size in [_AT_ONCE] * (start // _AT_ONCE) + [start % _AT_ONCE]:
            after.write(before.read(size))
        after.writelines(kept)
    return dropped


def _end_of(path: Path, after_step: int) -> tuple[int, list[bytes]]:
    """Return the lines at the end of a log that begin at or before a step, and where in the file they begin."""
    with path.open("rb") as file:
        size, length = file.seek(0, os.SEEK_END), _END
        while True:
            start = file.seek(max(0, size - length))
            if start:
                start += len(file.readline())
            lines = file.readlines()
            first = next((event for line in lines if (event := _event(line)) is not None), None)
            if start == 0 or (first is not None and first["step"] <= after_step):
                return start, lines
            length *= 4
