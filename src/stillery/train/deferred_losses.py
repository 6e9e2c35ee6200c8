"""Deferred reading of step losses, so that no step waits for the GPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from accelerate import Accelerator

from stillery.train.cuda.transfer import Fetched
from stillery.train.step_losses import StepLosses, finite

__all__ = ["BEHIND", "DeferredLosses", "Reading"]

LogFields = Mapping[str, Any]
"""The fields logged for a step besides its losses."""

BEHIND = 16
"""Maximum number of steps that a GPU may lag behind the host: enough to keep it busy, with few batches in memory."""


class Reading:
    """An asynchronous transfer of the losses of several steps to the host; those not `fetched` count as arrived."""

    def __init__(self, steps: Sequence[StepLosses], *, fetched: bool = True) -> None:
        self.steps = list(steps)
        self._fetched: Fetched | None = None
        pieces = [piece for one in self.steps for piece in one.tensors()]
        self._lengths = [len(piece) for piece in pieces]
        if fetched and pieces and pieces[0].is_cuda:
            self._fetched = Fetched([torch.cat(pieces)])

    @property
    def arrived(self) -> bool:
        """True if `read` returns without waiting."""
        return self._fetched is None or self._fetched.arrived

    def read(self) -> list[StepLosses]:
        """Return the losses of the steps, on the host."""
        if self._fetched is not None:
            (together,) = self._fetched.read()
            found = iter(together.split(self._lengths))
            for one in self.steps:
                one.replace_tensors(found)
        return self.steps


class DeferredLosses:
    """Yields the losses of steps in order once they are read, and stops the run at one that is not finite.

    On a CPU they are read at once. On a GPU those to be logged, and all before them, are read as soon as they have
    arrived. Several processes sum their losses, which all must do at the same step, so they wait for the GPU there.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self.every_step = accelerator.device.type == "cpu"
        self.alone = accelerator.num_processes == 1
        self._unread: list[StepLosses] = []
        self._seen: list[tuple[int, dict[str, float]]] = []
        self._readings: deque[tuple[Reading, LogFields | None]] = deque()
        self._steps: deque[torch.cuda.Event] = deque()

    def add(self, losses: StepLosses, fields: LogFields | None) -> None:
        """Add a step, which is logged if it has `fields`; wait for a GPU that lags more than `BEHIND` steps."""
        self._unread.append(losses)
        if fields is not None or self.every_step:
            self._start_reading(fields)
        if losses.values and losses.values[0].is_cuda:
            done = torch.cuda.Event()
            done.record()
            self._steps.append(done)
            if len(self._steps) > BEHIND:
                self._steps.popleft().synchronize()

    def arrived(self, *, wait: bool = False) -> Iterator[tuple[StepLosses, LogFields]]:
        """Yield the losses to be logged that have arrived since the last call; with `wait` wait for all."""
        if wait and self._unread:
            self._start_reading(None)
        while self._readings and (wait or self._readings[0][0].arrived):
            reading, fields = self._readings.popleft()
            steps = reading.read()
            self._seen += [(one.step, losses) for one, losses in zip(steps, finite(steps), strict=True)]
            if fields is not None:
                yield steps[-1], fields

    def seen(self) -> list[tuple[int, dict[str, float]]]:
        """Return the number, loss and terms, in this process, of every step read since the last call."""
        seen, self._seen = self._seen, []
        return seen

    def _start_reading(self, fields: LogFields | None) -> None:
        self._readings.append((Reading(self._unread, fetched=self.alone), fields))
        self._unread = []
