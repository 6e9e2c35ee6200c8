"""Decides by the clock when a checkpoint is due, so that a killed run loses seconds and not a number of steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from accelerate import Accelerator

from stillery.train.distributed import from_main

__all__ = ["SaveTimer"]

SHARE = 20
"""A checkpoint is written after at least this many times the seconds that the last one took."""


class SaveTimer:
    """A checkpoint is due when `seconds` have passed since the last one was written; None is never.

    Where writing takes long the time between two grows, so that at most a twentieth of a run is spent on it. When
    checkpoints are written changes nothing about what is learnt.
    """

    def __init__(
        self, seconds: float | None, accelerator: Accelerator, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds, self._accelerator, self._now = seconds, accelerator, now
        self._since, self._took = now(), 0.0

    def due(self) -> bool:
        """Whether a checkpoint is due, by the clock of the main process."""
        if self._seconds is None:
            return False
        passed = self._now() - self._since
        return from_main(self._accelerator, passed >= max(self._seconds, SHARE * self._took))

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Measure the writing of a checkpoint, after which the time begins anew."""
        began = self._now()
        yield
        self._since = self._now()
        self._took = self._since - began
