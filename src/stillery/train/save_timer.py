"""Decides by the clock when a checkpoint is due, so that a killed run loses seconds and not a number of steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from accelerate import Accelerator

from stillery.train.distributed import from_main

__all__ = ["SaveTimer"]

SHARE = 20
"""A checkpoint is due after this many times the seconds that the last one took: a twentieth of the time."""

FIRST = 1.0
"""Seconds after which the first checkpoint is due, whose cost is unknown, and between two that take no time."""

MOST = 5
"""Where writing is slow, a checkpoint is due after this many times what the last one took, however late that is."""


class SaveTimer:
    """A checkpoint is due at most `seconds` after the last one, and sooner where writing takes little; None is never.

    The pace follows what the last one cost to write. When checkpoints are written changes nothing about what is learnt.
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
        cheap = max(FIRST, SHARE * self._took)
        pause = max(min(self._seconds, cheap), MOST * self._took)
        return from_main(self._accelerator, self._now() - self._since >= pause)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Measure the writing of a checkpoint, after which the time starts again."""
        began = self._now()
        yield
        self._since = self._now()
        self._took = self._since - began
