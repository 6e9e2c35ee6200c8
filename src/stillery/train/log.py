"""What a run writes down as it goes: JSON Lines, TensorBoard, and a note on the progress bar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stillery.atomic import atomic_file
from stillery.errors import UserError

__all__ = ["RunLog", "need_tensorboard"]


def need_tensorboard() -> None:
    """Refuse early when TensorBoard is asked for and not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise UserError('tensorboard is not installed: pip install "stillery[tensorboard]"') from None


def _flat(event: dict[str, Any], prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for key, value in event.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[f"{prefix}{key}"] = float(value)
    return found


class RunLog:
    """Events of a run, one JSON object a line, and the same numbers as TensorBoard scalars when asked for."""

    def __init__(self, folder: Path, *, tensorboard: bool = False, after_step: int | None = None) -> None:
        """Open the log; when a run goes on after a step, what it had written beyond that step is dropped."""
        self.path = folder / "log.jsonl"
        if after_step is not None and self.path.exists():
            kept = []
            for line in self.path.read_text(encoding="utf-8").splitlines():
                try:
                    event = json.loads(line)
                except json.JSONDecodeError:  # the line a killed process was writing
                    continue
                if event["step"] <= after_step:
                    kept.append(line + "\n")
            with atomic_file(self.path) as part:
                part.write_text("".join(kept), encoding="utf-8")
        self._file = self.path.open("a", encoding="utf-8")
        self._board = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=after_step)

    def write(self, event: str, step: int, **values: Any) -> None:
        """Write one event."""
        self._file.write(json.dumps({"event": event, "step": step, **values}) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in _flat(values).items():
                self._board.add_scalar(f"{event}/{name}", value, step)

    def close(self) -> None:
        """Flush and close."""
        self._file.close()
        if self._board is not None:
            self._board.close()
