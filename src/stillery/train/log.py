"""The training log of a run: JSON Lines, with the same numbers sent to experiment trackers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from stillery.atomic import atomic_file
from stillery.progress import say
from stillery.train.trackers import Logged, Trackers

__all__ = ["RunLog", "read_events"]


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

    The last line, which a killed process may have been writing, does not count as damaged.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    events: list[dict[str, Any]] = []
    damaged = 0
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if _is_event(event):
            events.append(event)
        elif line.strip() and number < len(lines):
            damaged += 1
    return events, damaged


def _is_event(event: Any) -> bool:
    """Return whether this is an event as a run writes it."""
    if not isinstance(event, dict) or not isinstance(event.get("event"), str) or type(event.get("step")) is not int:
        return False
    shapes: dict[str, dict[str, Any]]
    shapes = {"train": {"stage": str, "loss": (int, float), "terms": dict}, "dev": {"metrics": dict},
              "guards": {"stage": str}}  # fmt: skip
    return all(isinstance(event.get(name), kind) for name, kind in shapes.get(event["event"], {}).items())


def _cut(path: Path, after_step: int) -> set[Logged]:
    """Remove the events beyond a step from a log, and return them."""
    kept, dropped = [], set()
    events, damaged = read_events(path)
    if damaged:
        say(f"{path}: {damaged} damaged {'line is' if damaged == 1 else 'lines are'} left out")
    for event in events:
        if event["step"] <= after_step:
            kept.append(json.dumps(event) + "\n")
        else:
            dropped.add((event["event"], event["step"]))
    with atomic_file(path) as part:
        part.write_text("".join(kept), encoding="utf-8")
    return dropped
