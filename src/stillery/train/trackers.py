"""Experiment trackers, through Accelerate: TensorBoard, MLflow, Weights & Biases, Trackio.

`log.jsonl` stays the log; trackers get its numbers. TensorBoard's events are in the run folder, in `tensorboard/`. The
others write to their usual place (a server, or a folder of their own), in a project called stillery. `trackers.json` in
the run folder stores their run ids, so that a resumed run is resumed there too, and the events already sent, so that
none is sent twice. Only the main process uses trackers.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.tracking import (
    GeneralTracker,
    MLflowTracker,
    TensorBoardTracker,
    TrackioTracker,
    WandBTracker,
    filter_trackers,
)
from accelerate.utils import is_mlflow_available, is_tensorboard_available, is_trackio_available, is_wandb_available

from stillery.atomic import atomic_file
from stillery.errors import ErrorList, UserError, nearest
from stillery.progress import say

__all__ = ["Logged", "Trackers", "check_trackers"]

Logged = tuple[str, int]
"""An event of the log: its type and its step."""

_PROJECT = "stillery"

_INSTALLED = {
    "tensorboard": is_tensorboard_available,
    "mlflow": is_mlflow_available,
    "wandb": is_wandb_available,
    "trackio": is_trackio_available,
}


def check_trackers(names: Sequence[str]) -> None:
    """Raise UserError for trackers that do not exist or are not installed, before any long work."""
    errors = ErrorList()
    for name in names:
        if name not in _INSTALLED:
            errors.add(f"--track {name}: no such tracker: {nearest(name, _INSTALLED)}")
        elif not _INSTALLED[name]():
            errors.add(f'{name} is not installed: pip install "stillery[{name}]"')
    errors.raise_any()


@dataclass(frozen=True, kw_only=True)
class _State:
    """The state needed to resume: the run's names in the trackers, and the events beyond its step already sent."""

    name: str
    mlflow_run: str | None = None
    sent: tuple[Logged, ...] = ()

    @classmethod
    def read(cls, file: Path) -> _State | None:
        """Read the saved state; None without one."""
        try:
            kept = json.loads(file.read_text(encoding="utf-8"))
            sent = tuple((str(event), int(step)) for event, step in kept["sent"])
            return cls(name=str(kept["name"]), mlflow_run=kept["mlflow_run"], sent=sent)
        except (OSError, ValueError, KeyError, TypeError):
            return None


class Trackers:
    """The trackers of one run."""

    def __init__(
        self,
        accelerator: Accelerator,
        names: Sequence[str],
        folder: Path,
        *,
        about: Mapping[str, Any],
        after_step: int | None = None,
        dropped: Collection[Logged] = (),
    ) -> None:
        """Start the trackers with the run's settings; `dropped` are logged events that the resumed run repeats."""
        self._accelerator, self._file = accelerator, folder / "trackers.json"
        self._held: list[tuple[int, str, dict[str, float]]] = []
        kept = None if after_step is None else _State.read(self._file)
        state = kept or _State(name=f"{folder.resolve().name}-{uuid.uuid4().hex[:8]}")
        if kept is not None:
            state = replace(kept, sent=tuple(sorted({*kept.sent, *dropped})))
        self._sent = frozenset(state.sent)
        made = [_tracker(name, state, folder, after_step) for name in names]
        accelerator.log_with = filter_trackers(made, folder)
        try:
            with redirect_stdout(sys.stderr):  # stdout is for results only
                accelerator.init_trackers(_PROJECT)
            remote = [tracker for tracker in accelerator.trackers if tracker.name != "tensorboard"]
            for tracker in remote:
                if kept is None:
                    tracker.store_init_configuration(_plain(about))
                if tracker.name == "mlflow":
                    state = replace(state, mlflow_run=tracker.tracker.info.run_id)
        except Exception as error:  # each raises its own errors: no login, no server, a damaged folder
            started = ", ".join(names)
            accelerator.trackers.clear()
            raise UserError(f"--track {started}: cannot start ({type(error).__name__}: {error})") from None
        if remote:
            with atomic_file(self._file) as part:
                part.write_text(json.dumps(asdict(state)) + "\n", encoding="utf-8")

    def write(self, event: str, step: int, numbers: Mapping[str, float]) -> None:
        """Send the numbers of one event; those of guards wait for the losses of their step: steps must not go back."""
        self._held.append((step, event, {f"{event}/{name}": value for name, value in numbers.items()}))
        if event not in ("warning", "guards"):
            self._send(step)

    def close(self) -> None:
        """Send the remaining events, and finish the trackers' runs."""
        if self._held:
            self._send(max(step for step, _, _ in self._held))
        # Not `end_training`, which also destroys the process group that scoring still needs.
        with redirect_stdout(sys.stderr):
            for tracker in self._accelerator.trackers:
                tracker.finish()
        self._accelerator.trackers.clear()

    def _send(self, step: int) -> None:
        due = sorted((one for one in self._held if one[0] <= step), key=lambda one: one[0])
        self._held = [one for one in self._held if one[0] > step]
        for at, event, numbers in due:
            for tracker in list(self._accelerator.trackers):
                # TensorBoard purges repeated steps by itself.
                if tracker.name == "tensorboard" or (event, at) not in self._sent:
                    self._log(tracker, numbers, at)

    def _log(self, tracker: GeneralTracker, numbers: dict[str, float], step: int) -> None:
        try:
            tracker.log(numbers, step=step)
        except Exception as error:  # an unreachable server must not end a run
            why = " ".join(f"{type(error).__name__}: {error}".split())
            say(f"warning: {tracker.name} gets no more of the log ({why}); log.jsonl continues")
            self._accelerator.trackers.remove(tracker)


def _tracker(name: str, state: _State, folder: Path, after_step: int | None) -> GeneralTracker:
    """Create a tracker without starting it."""
    shown = folder.resolve().name
    if name == "tensorboard":
        purged = {} if after_step is None else {"purge_step": after_step + 1}
        return TensorBoardTracker("tensorboard", str(folder), **purged)
    if name == "mlflow":
        return MLflowTracker(experiment_name=_PROJECT, run_id=state.mlflow_run, run_name=shown)
    if name == "wandb":
        return WandBTracker(_PROJECT, name=shown, id=state.name, resume="allow")
    return TrackioTracker(_PROJECT, name=state.name, resume="allow")


def _plain(about: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten settings for trackers: one level deep, lists as text."""
    found: dict[str, Any] = {}
    for name, value in about.items():
        if isinstance(value, Mapping):
            found |= _plain(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value if isinstance(value, bool | int | float | str) else str(value)
    return found
