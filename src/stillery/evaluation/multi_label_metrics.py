"""Multi-label metrics of rows of 0 and 1 `[n, labels]`, on the examples and on bootstrap resamples of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SET_METRICS", "resampled_sets", "score_sets"]

Array = NDArray[np.float64]

LARGEST_DRAW = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Tally:
    """True positives, gold and predicted examples per label `[draws, labels]`; exact matches and examples `[draws]`."""

    hits: Array
    gold: Array
    predicted: Array
    exact: Array
    examples: Array


def score_sets(gold: NDArray[Any], guess: NDArray[Any], metric: str) -> float:
    """A multi-label metric of predictions, between 0 and 1."""
    return float(SET_METRICS[metric](_tally(gold, guess, np.ones((1, len(gold)))))[0])


def resampled_sets(
    gold: NDArray[Any], predictions: Sequence[NDArray[Any]], metric: str, draws: int, random: np.random.Generator
) -> Array:
    """The metric of each model on the same resamples of the examples, between 0 and 1, `[draws, models]`."""
    # Counts of the examples in each resample, for as many resamples at once as fit in memory.
    at_once = max(1, LARGEST_DRAW // len(gold))
    values = []
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        drawn = (random.integers(0, len(gold), len(gold)) for _ in range(count))
        times = np.stack([np.bincount(rows, minlength=len(gold)) for rows in drawn]).astype(np.float64)
        values.append(np.stack([SET_METRICS[metric](_tally(gold, guess, times)) for guess in predictions], axis=1))
    return np.concatenate(values)


def _tally(gold: NDArray[Any], guess: NDArray[Any], times: Array) -> Tally:
    """Sums over the examples, each weighted by its count in a resample `[draws, n]`."""
    actual, found = gold.astype(np.float64), guess.astype(np.float64)
    return Tally(
        hits=times @ (actual * found),
        gold=times @ actual,
        predicted=times @ found,
        exact=times @ (actual == found).all(axis=1).astype(np.float64),
        examples=times.sum(axis=1),
    )


def _f1(hits: Array, gold: Array, predicted: Array) -> Array:
    """F1; 0 where there are neither gold nor predicted labels, as in scikit-learn."""
    below = gold + predicted
    return np.divide(2 * hits, below, out=np.zeros_like(hits), where=below > 0)


def _f1_micro(tally: Tally) -> Array:
    return _f1(tally.hits.sum(axis=1), tally.gold.sum(axis=1), tally.predicted.sum(axis=1))


def _f1_macro(tally: Tally) -> Array:
    mean: Array = _f1(tally.hits, tally.gold, tally.predicted).mean(axis=1)
    return mean


SET_METRICS: Mapping[str, Callable[[Tally], Array]] = {
    "f1_micro": _f1_micro,
    "f1_macro": _f1_macro,
    "accuracy": lambda tally: tally.exact / tally.examples,
}
"""F1 over all decisions, the mean F1 over labels, and the share of texts whose label set is exactly correct."""
