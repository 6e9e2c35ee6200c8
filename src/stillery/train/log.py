"""The training log of a run: JSON Lines, with the same numbers sent to experiment trackers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from stillery.atomic import atomic_file
from stillery.train.trackers import Logged, Trackers

__all__ = ["RunLog"]


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


def _cut(path: Path, after_step: int) -> set[Logged]:
    """Remove the events beyond a step from a log, and return them."""
    kept, dropped = [], set()
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:  # the line a killed process was writing
            continue
        if event["step"] <= after_step:
            kept.append(line + "\n")
        else:
            dropped.add((event["event"], event["step"]))
    with atomic_file(path) as part:
        part.write_text("".join(kept), encoding="utf-8")
    return dropped
