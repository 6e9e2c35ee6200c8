"""Paired bootstrap: confidence intervals of the difference between two models on the same examples.

Every resample of the examples is drawn once and used for all models, so that what is easy or hard for all of them
cancels out. The resamples only depend on the number of examples and the seed: a difference does not depend on which
other models are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from stillery.evaluation.measures import Measure

__all__ = ["DRAWS", "LEVEL", "Array", "bounds", "difference", "differences", "interval", "resamples", "value", "wilson"]

Array: TypeAlias = NDArray[np.float64]

LEVEL = 0.95
DRAWS = 1000
_LARGEST_BLOCK = 10_000_000


def resamples(examples: int, *, draws: int = DRAWS, seed: int = 0) -> Iterator[Array]:
    """Draw resamples: the count of each example, in blocks `[some draws, examples]` that fit in memory."""
    random = np.random.default_rng(seed)
    at_once = max(1, _LARGEST_BLOCK // examples)
    for start in range(0, draws, at_once):
        rows = (random.integers(0, examples, examples) for _ in range(min(at_once, draws - start)))
        yield np.stack([np.bincount(drawn, minlength=examples) for drawn in rows]).astype(np.float64)


def value(measure: Measure, examples: int) -> float:
    """The metric on the examples themselves, without resampling."""
    return float(measure.scores(np.ones((1, examples)))[0])


def interval(measure: Measure, examples: int, *, draws: int = DRAWS, seed: int = 0) -> tuple[float, float]:
    """The 95% percentile bootstrap interval of one model's metric."""
    return bounds(
        np.concatenate([measure.scores(times) for times in resamples(examples, draws=draws, seed=seed)]), LEVEL
    )


def difference(
    ours: Measure, theirs: Measure, examples: int, *, draws: int = DRAWS, seed: int = 0
) -> tuple[float, tuple[float, float]]:
    """The metric of `ours` minus that of `theirs`, with the 95% percentile interval of a paired bootstrap."""
    (found,) = differences([ours], theirs, examples, draws=draws, seed=seed)
    return found


def differences(
    measures: Sequence[Measure], theirs: Measure, examples: int, *, draws: int = DRAWS, seed: int = 0
) -> list[tuple[float, tuple[float, float]]]:
    """The differences of several models from one, as `difference` gives them; the resamples are drawn once."""
    apart: list[list[Array]] = [[] for _ in measures]
    for times in resamples(examples, draws=draws, seed=seed):
        base = theirs.scores(times)
        for found, ours in zip(apart, measures, strict=True):
            found.append(ours.scores(times) - base)
    beyond = value(theirs, examples)
    return [
        (value(ours, examples) - beyond, bounds(np.concatenate(found), LEVEL))
        for ours, found in zip(measures, apart, strict=True)
    ]


def bounds(values: Array, level: float) -> tuple[float, float]:
    """The percentile bootstrap interval of the values at a confidence level such as 0.95."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def wilson(right: int, examples: int, level: float = LEVEL) -> tuple[float, float]:
    """The Wilson interval of a proportion, in percent."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, spread = right / examples, z**2 / examples
    half = float(np.sqrt(spread * share * (1 - share) + spread**2 / 4))
    low, high = share + spread / 2 - half, share + spread / 2 + half
    return 100 * max(0.0, low / (1 + spread)), 100 * min(1.0, high / (1 + spread))
