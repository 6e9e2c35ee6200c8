"""When what steps said is read back: on a GPU once it has arrived, so that no step waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate import Accelerator

from stillery.train.said import Said, stop_if_not_finite

__all__ = ["Reading", "Telling"]

Facts = Mapping[str, Any]

MOST = 2
"""Readings that may be on their way at a time: so far, and no further, the host is ahead of a GPU."""


class Reading:
    """What several steps said, on its way from a GPU to the host; what is there, or is not `fetched`, has arrived."""

    def __init__(self, steps: Sequence[Said], *, fetched: bool = True) -> None:
        self.steps = list(steps)
        self._arrives: torch.cuda.Event | None = None
        self._on_host: torch.Tensor | None = None
        pieces = [piece for said in self.steps for piece in said.tensors()]
        if fetched and pieces and pieces[0].is_cuda:
            together = torch.cat(pieces)
            self._on_host = torch.empty_like(together, device="cpu", pin_memory=True)
            self._on_host.copy_(together, non_blocking=True)
            self._arrives = torch.cuda.Event()
            self._arrives.record()

    @property
    def arrived(self) -> bool:
        """Whether reading it would not wait."""
        return self._arrives is None or self._arrives.query()

    def read(self) -> list[Said]:
        """The steps, with numbers that are on the host."""
        if self._arrives is not None and self._on_host is not None:
            self._arrives.synchronize()
            found = iter(self._on_host.split([len(piece) for said in self.steps for piece in said.tensors()]))
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

    def add(self, said: Said, facts: Facts | None) -> None:
        """Add a step; with `facts` it is to be told, together with these."""
        self._unread.append(said)
        if facts is not None or self.every_step:
            self._read(facts)

    def told(self, *, wait: bool = False) -> list[tuple[Said, Facts]]:
        """What has arrived since the last time, and what is more than may be on its way; with `wait` everything."""
        if wait and self._unread:
            self._read(None)
        found = []
        while self._readings and (wait or len(self._readings) > MOST or self._readings[0][0].arrived):
            reading, facts = self._readings.popleft()
            steps = reading.read()
            stop_if_not_finite(steps)
            if facts is not None:
                found.append((steps[-1], facts))
        return found

    def _read(self, facts: Facts | None) -> None:
        self._readings.append((Reading(self._unread, fetched=self.alone), facts))
        self._unread = []
