"""Whether a loss has exploded: it is far above where it started and stays there, though every number is finite."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

__all__ = ["Explosion", "LossWatch"]

STEPS = 10
"""Steps whose median is compared with the start: a few bad batches move no median."""

START_EXAMPLES = 8
"""Examples that a loss at the start is a mean over: the first step, which comes before any change of the weights, or
the first few where batches are small."""

TOTAL, TERM, SQUARED_TERM, LEAST, LAYERS = 5.0, 3.0, 9.0, 2.0, 100.0
"""How many times the start the loss must be, and a term of predictions, and a squared error (three times the error);
what such a term must be at least; and how many times the start a loss of layers alone must be."""


@dataclass(frozen=True, kw_only=True)
class Explosion:
    """The loss at the start of a stage, and its median over the last steps; the term of predictions that rose too."""

    step: int
    start: float
    now: float
    term: str | None


class LossWatch:
    """Compares the losses of a stage's steps, in their order, with those at its start.

    Training lowers its loss, so a healthy run has its highest losses at the start, when it knows nothing. What a
    healthy run may do all the same is excluded one by one:

    - Single batches may be far off: the median of ten steps counts, against a start of 8 examples or more.
    - A schedule may raise the weight of a term, and with it the loss: a term of predictions, as it is before its
      weight, must be three times its start as well.
    - A student that starts as its teacher, or from a trained checkpoint, has next to no loss to begin with: that term
      must also be above 2, which is worse than a guess among seven classes.
    - Where layers alone are matched there is no such term, and layers drawn anew each epoch may be much further apart:
      the loss must be a hundred times that of the first steps of its own epoch.

    Steps on texts that the student generates have other losses than those on the data; such runs are not watched.
    """

    def __init__(self, *, start: int, window: int, per_epoch: int, terms: Sequence[str], squared: bool) -> None:
        self.first_steps = math.ceil(START_EXAMPLES / window)
        self.terms, self.factor = tuple(terms), SQUARED_TERM if squared else TERM
        self.start, self._per_epoch, self._epoch = start, per_epoch, 0
        self._first: list[Mapping[str, float]] = []
        self._last: deque[Mapping[str, float]] = deque(maxlen=STEPS)

    def see(self, step: int, losses: Mapping[str, float]) -> Explosion | None:
        """Look at the losses of a step, counted from 1: the total by the name `loss`, and its terms."""
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
