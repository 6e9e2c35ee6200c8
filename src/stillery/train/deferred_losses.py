"""When what steps said is read back: on a GPU once it has arrived, so that no step waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from accelerate import Accelerator

from stillery.train.cuda.transfer import Fetched
from stillery.train.step_losses import Said, stop_if_not_finite

__all__ = ["BEHIND", "Reading", "Telling"]

Facts = Mapping[str, Any]

BEHIND = 16
"""Steps that a GPU may be behind the host: enough to be always busy, and no more memory than their batches take."""


class Reading:
    """What several steps said, on its way from a GPU to the host; what is there, or is not `fetched`, has arrived."""

    def __init__(self, steps: Sequence[Said], *, fetched: bool = True) -> None:
        self.steps = list(steps)
        self._fetched: Fetched | None = None
        pieces = [piece for said in self.steps for piece in said.tensors()]
        self._lengths = [len(piece) for piece in pieces]
        if fetched and pieces and pieces[0].is_cuda:
            self._fetched = Fetched([torch.cat(pieces)])

    @property
    def arrived(self) -> bool:
        """Whether reading it would not wait."""
        return self._fetched is None or self._fetched.arrived

    def read(self) -> list[Said]:
        """The steps, with numbers that are on the host."""
        if self._fetched is not None:
            (together,) = self._fetched.read()
            found = iter(together.split(self._lengths))
            for said in self.steps:
                said.take(found)
        return self.steps


class Telling:
    """Tells what steps said, in their order, and ends the run at one whose loss is no number.

    On a CPU that is at once. On a GPU it is what is to be written down, and all before it, as soon as it has arrived.
    Several processes add their numbers up, which all have to do at the same step, so there it is waited for.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self.every_step = accelerator.device.type == "cpu"
        self.alone = accelerator.num_processes == 1
        self._unread: list[Said] = []
        self._readings: deque[tuple[Reading, Facts | None]] = deque()
        self._steps: deque[torch.cuda.Event] = deque()

    def add(self, said: Said, facts: Facts | None) -> None:
        """Add a step; with `facts` it is to be told, with these. A GPU that is too far behind is waited for."""
        self._unread.append(said)
        if facts is not None or self.every_step:
            self._read(facts)
        if said.values and said.values[0].is_cuda:
            done = torch.cuda.Event()
            done.record()
            self._steps.append(done)
            if len(self._steps) > BEHIND:
                self._steps.popleft().synchronize()

    def told(self, *, wait: bool = False) -> Iterator[tuple[Said, Facts]]:
        """What has arrived since the last time; with `wait` everything there is."""
        if wait and self._unread:
            self._read(None)
        while self._readings and (wait or self._readings[0][0].arrived):
            reading, facts = self._readings.popleft()
            steps = reading.read()
            stop_if_not_finite(steps)
            if facts is not None:
                yield steps[-1], facts

    def _read(self, facts: Facts | None) -> None:
        self._readings.append((Reading(self._unread, fetched=self.alone), facts))
        self._unread = []
