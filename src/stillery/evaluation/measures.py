"""Metrics of predictions that can be computed on many resamples of the examples at once.

A resample is given by the count of each example in it. Most metrics follow from sums over examples (correct ones,
entries of a confusion matrix, matched n-grams, moments), so the scores of all resamples take one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stillery.errors import UserError, nearest

__all__ = ["FromSums", "Measure", "OnRows", "Ranks", "class_measure", "measured", "score_measure", "set_measure"]

Array = NDArray[np.float64]

AT_ONCE = 250_000
CORRELATIONS = ("pearson", "spearman")


class Measure(Protocol):
    """A metric, in percent, of one model's predictions."""

    def scores(self, times: Array) -> Array:
        """The score of each resample `[draws]`, given the count of each example in it `[draws, n]`."""

    def taken(self, order: NDArray[np.int64]) -> Measure:
        """The same with the examples in another order."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FromSums:
    """A metric that follows from sums over the examples.

    Attributes:
        rows: the contribution of each example to each sum, `[n, sums]`.
        value: computes the metric of each resample `[draws]` from its sums `[draws, sums]`.
    """

    rows: Array
    value: Callable[[Array], Array]

    def scores(self, times: Array) -> Array:
        """The score of each resample."""
        return self.value(times @ self.rows)

    def taken(self, order: NDArray[np.int64]) -> FromSums:
        """The same with the examples in another order."""
        return FromSums(rows=self.rows[order], value=self.value)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranks:
    """Spearman correlation of predicted and gold scores `[n]`; each resample is ranked anew, ties share their rank."""

    gold: Array
    guess: Array

    def scores(self, times: Array) -> Array:
        """The score of each resample."""
        # In pieces that fit into the processor's cache.
        pieces = np.array_split(times, max(1, times.size // AT_ONCE))
        return 100 * np.concatenate([self._correlations(piece) for piece in pieces])

    def _correlations(self, times: Array) -> Array:
        (x, xx), (y, yy) = _midranks(self.gold, times), _midranks(self.guess, times)
        xy = np.einsum("dn,dn,dn->d", times, x, y)
        # Centred ranks sum to 0.
        zero = np.zeros_like(xy)
        return _correlation(np.stack([times.sum(axis=1), zero, zero, xx, yy, xy], axis=1))

    def taken(self, order: NDArray[np.int64]) -> Ranks:
        """The same with the examples in another order."""
        return Ranks(gold=self.gold[order], guess=self.guess[order])


@dataclass(frozen=True, kw_only=True, eq=False)
class OnRows:
    """Any other metric: a function of labels and predictions `[n, ...]` in percent, called once per resample."""

    gold: NDArray[Any]
    guess: NDArray[Any]
    metric: Callable[[NDArray[Any], NDArray[Any]], float]

    def scores(self, times: Array) -> Array:
        """The score of each resample."""
        found = np.empty(len(times))
        for draw, counts in enumerate(times.astype(np.int64)):
            rows = np.repeat(np.arange(len(counts)), counts)
            found[draw] = self.metric(self.gold[rows], self.guess[rows])
        return found

    def taken(self, order: NDArray[np.int64]) -> OnRows:
        """The same with the examples in another order."""
        return OnRows(gold=self.gold[order], guess=self.guess[order], metric=self.metric)


def measured(gold: NDArray[Any], guess: NDArray[Any], metric: str) -> Measure:
    """Return a metric of classes or scores `[n]`, or of several labels `[n, labels]`."""
    if gold.ndim == 2:
        return set_measure(gold, guess, metric)
    return (score_measure if metric in CORRELATIONS else class_measure)(gold, guess, metric)


def class_measure(gold: NDArray[Any], guess: NDArray[Any], metric: str) -> FromSums:
    """Accuracy, f1 (of class 1), f1_macro or matthews of class indices `[n]`."""
    from stillery.evaluation.bootstrap import COUNTED, Counts

    measure = COUNTED[_known(metric, list(COUNTED))]
    classes = np.eye(1 + max(int(gold.max()), int(guess.max())))
    actual, found = classes[gold], classes[guess]

    def value(sums: Array) -> Array:
        hits, right, predicted = np.split(sums, 3, axis=1)
        return 100 * measure(Counts(hits=hits, gold=right, predicted=predicted))

    return FromSums(rows=np.concatenate([actual * found, actual, found], axis=1), value=value)


def set_measure(gold: NDArray[Any], guess: NDArray[Any], metric: str) -> FromSums:
    """f1_micro, f1_macro or accuracy (all labels correct) of rows of 0 and 1 `[n, labels]`."""
    from stillery.evaluation.multi_label_metrics import SET_METRICS, Tally

    measure = SET_METRICS[_known(metric, list(SET_METRICS))]
    actual, found = gold.astype(np.float64), guess.astype(np.float64)
    labels = actual.shape[1]

    def value(sums: Array) -> Array:
        hits, right, predicted, rest = np.split(sums, [labels, 2 * labels, 3 * labels], axis=1)
        return 100 * measure(Tally(hits=hits, gold=right, predicted=predicted, exact=rest[:, 0], examples=rest[:, 1]))

    exact = (actual == found).all(axis=1, keepdims=True).astype(np.float64)
    rows = [actual * found, actual, found, exact, np.ones_like(exact)]
    return FromSums(rows=np.concatenate(rows, axis=1), value=value)


def score_measure(gold: NDArray[Any], guess: NDArray[Any], metric: str) -> Measure:
    """Pearson or Spearman correlation of scores `[n]`, 0 where it is undefined."""
    gold, guess = gold.astype(np.float64), guess.astype(np.float64)
    if _known(metric, CORRELATIONS) == "spearman":
        return Ranks(gold=gold, guess=guess)
    # Centred, because differences of large sums of squares lose precision.
    x, y = gold - gold.mean(), guess - guess.mean()
    rows = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)
    return FromSums(rows=rows, value=lambda sums: 100 * _correlation(sums))


def _known(metric: str, known: Sequence[str]) -> str:
    if metric not in known:
        raise UserError(f"unknown metric {metric!r}; {nearest(metric, known)}")
    return metric


def _midranks(values: Array, times: Array) -> tuple[Array, Array]:
    """The rank of each example in each resample `[draws, n]` minus the mean rank, and their sum of squares `[draws]`.

    Equal values share the mean of their ranks.
    """
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    counts = times[:, order]
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    if len(first) < len(values):
        counts = np.add.reduceat(counts, first, axis=1)
    size = times.sum(axis=1)
    ranks = np.cumsum(counts, axis=1) - (counts + size[:, None]) / 2
    squares = np.einsum("dn,dn,dn->d", counts, ranks, ranks)
    return np.take(ranks, group, axis=1), squares


def _correlation(moments: Array) -> Array:
    """Correlations from the count and the sums of x, y, xx, yy, xy, `[draws, 6]`."""
    size, x, y, xx, yy, xy = moments.T
    left, right = size * xx - x * x, size * yy - y * y
    # A variance of 0 may leave a rounding error.
    defined = (left > 1e-12 * size * xx) & (right > 1e-12 * size * yy)
    below = np.sqrt(np.where(defined, left * right, 1.0))
    return np.where(defined, np.clip((size * xy - x * y) / below, -1, 1), 0.0)
