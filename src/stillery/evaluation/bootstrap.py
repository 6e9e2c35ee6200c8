"""Bootstrap resamples of a metric, all at once.

A resample of n examples holds each distinct (gold, prediction, ...) row a multinomial number of times, so a
classification metric of all resamples follows from a few counts. A thousand calls of scikit-learn would take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.evaluation.correlation import pearson, spearman
from stillery.evaluation.multi_label_metrics import resampled_sets
from stillery.evaluation.paired import Array, bounds

__all__ = ["bounds", "replicates"]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """True positives, gold and predicted examples of each class per resample, each `[draws, classes]`."""

    hits: Array
    gold: Array
    predicted: Array


def replicates(
    gold: NDArray[Any], predictions: Sequence[NDArray[Any]], metric: str, *, draws: int, seed: int
) -> NDArray[np.float64]:
    """The metric (in percent) of each model on the same resamples of the examples, `[draws, models]`.

    Classes and scores are `[n]`, several labels per example `[n, labels]`.
    """
    random = np.random.default_rng(seed)
    if gold.ndim == 2:
        return 100 * resampled_sets(gold, predictions, metric, draws, random)
    if metric in CORRELATIONS:
        return _resampled_rows(gold, predictions, CORRELATIONS[metric], draws, random)
    return _resampled_counts(gold, predictions, COUNTED[metric], draws, random)


def _resampled_rows(
    gold: NDArray[Any],
    predictions: Sequence[NDArray[Any]],
    correlate: Callable[[NDArray[Any], NDArray[Any]], float],
    draws: int,
    random: np.random.Generator,
) -> Array:
    values = np.empty((draws, len(predictions)))
    for draw in range(draws):
        rows = random.integers(0, len(gold), len(gold))
        values[draw] = [100 * correlate(gold[rows], predicted[rows]) for predicted in predictions]
    return values


def _resampled_counts(
    gold: NDArray[Any],
    predictions: Sequence[NDArray[Any]],
    measure: Callable[[Counts], Array],
    draws: int,
    random: np.random.Generator,
) -> Array:
    rows, times = np.unique(np.stack([gold, *predictions], axis=1), axis=0, return_counts=True)
    drawn = random.multinomial(len(gold), times / len(gold), size=draws).astype(np.float64)
    classes = np.eye(int(rows.max()) + 1)
    actual = classes[rows[:, 0]]
    values = []
    for column in range(1, rows.shape[1]):
        guess = classes[rows[:, column]]
        counts = Counts(hits=drawn @ (actual * guess), gold=drawn @ actual, predicted=drawn @ guess)
        values.append(100 * measure(counts))
    return np.stack(values, axis=1)


def _ratio(above: Array, below: Array) -> Array:
    # 0 / 0 counts as 0, as in scikit-learn.
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _accuracy(counts: Counts) -> Array:
    return _ratio(counts.hits.sum(axis=1), counts.gold.sum(axis=1))


def _f1_of_classes(counts: Counts) -> Array:
    return _ratio(2 * counts.hits, counts.gold + counts.predicted)


def _f1(counts: Counts) -> Array:
    scores = _f1_of_classes(counts)
    # There is no column for class 1 if no example has it as gold or predicted class.
    return scores[:, 1] if scores.shape[1] > 1 else np.zeros(len(scores))


def _f1_macro(counts: Counts) -> Array:
    seen = counts.gold + counts.predicted > 0
    return _ratio(_f1_of_classes(counts).sum(axis=1), seen.sum(axis=1).astype(np.float64))


def _matthews(counts: Counts) -> Array:
    examples = counts.gold.sum(axis=1)
    above = examples * counts.hits.sum(axis=1) - (counts.gold * counts.predicted).sum(axis=1)
    spread_gold = examples**2 - (counts.gold**2).sum(axis=1)
    spread_predicted = examples**2 - (counts.predicted**2).sum(axis=1)
    return _ratio(above, np.sqrt(spread_gold * spread_predicted))


COUNTED: Mapping[str, Callable[[Counts], Array]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "f1_macro": _f1_macro,
    "matthews": _matthews,
}
CORRELATIONS: Mapping[str, Callable[[NDArray[Any], NDArray[Any]], float]] = {"pearson": pearson, "spearman": spearman}
