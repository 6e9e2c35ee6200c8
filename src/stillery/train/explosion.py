"""Detection of loss explosions: a loss that stays far above its start although every value is finite."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

__all__ = ["Explosion", "LossWatch"]

STEPS = 10
"""Number of steps whose median is compared with the start; the median is robust to a few bad batches."""

START_EXAMPLES = 8
"""Least number of examples that the loss at the start is averaged over: the first step, which precedes any update, or
the first few steps where batches are small."""

TOTAL, TERM, SQUARED_TERM, LEAST, LAYERS = 5.0, 3.0, 9.0, 2.0, 100.0
"""Thresholds as multiples of the start: of the loss, of a prediction term, of a squared error (three times the error);
the least value of such a term; and the multiple for a loss of layers alone."""


@dataclass(frozen=True, kw_only=True)
class Explosion:
    """The loss at the start of a stage, its median over the last steps, and the prediction term that rose as well."""

    step: int
    start: float
    now: float
    term: str | None


class LossWatch:
    """Compares the losses of a stage's steps, in order, with those at its start.

    Training lowers the loss, so a healthy run has its highest losses at the start. Exceptions that occur in healthy
    runs are excluded one by one:

    - Single batches may be outliers: the median of ten steps is compared, against a start of 8 examples or more.
    - A schedule may raise the weight of a term, and with it the loss: an unweighted prediction term must be three times
      its start as well.
    - A student that starts as its teacher, or from a trained checkpoint, has almost no loss at first: that term must
      also be above 2, which is worse than a random guess among seven classes.
    - Where only layers are matched there is no such term, and layers redrawn each epoch may be much further apart: the
      loss must be a hundred times that of the first steps of its own epoch.

    On-policy steps have other losses than those on the data; such runs are not watched.
    """

    def __init__(self, *, start: int, window: int, per_epoch: int, terms: Sequence[str], squared: bool) -> None:
        self.first_steps = math.ceil(START_EXAMPLES / window)
        self.terms, self.factor = tuple(terms), SQUARED_TERM if squared else TERM
        self.start, self._per_epoch, self._epoch = start, per_epoch, 0
        self._first: list[Mapping[str, float]] = []
        self._last: deque[Mapping[str, float]] = deque(maxlen=STEPS)

    def see(self, step: int, losses: Mapping[str, float]) -> Explosion | None:
        """Add the losses of a step, counted from 1 (`loss` is the total); return the explosion, if there is one."""
        epoch = (step - 1 - self.start) // self._per_epoch
        if not self.terms and epoch != self._epoch:
            self._epoch, self._first = epoch, []
            self._last.clear()
        if len(self._first) < self.first_steps:
            self._first.append(losses)
            return None
        self._last.append(losses)
        if len(self._last) < STEPS:
            return None
        start, now = self._at_start("loss"), self._lately("loss")
        if now <= (TOTAL if self.terms else LAYERS) * start:
            return None
        risen = [name for name in self.terms if self._lately(name) > max(self.factor * self._at_start(name), LEAST)]
        if self.terms and not risen:
            return None
        return Explosion(step=step, start=start, now=now, term=risen[0] if risen else None)

    def _at_start(self, name: str) -> float:
        return fmean(one.get(name, 0.0) for one in self._first)

    def _lately(self, name: str) -> float:
        return median(one.get(name, 0.0) for one in self._last)
