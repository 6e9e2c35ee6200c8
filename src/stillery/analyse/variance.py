"""Distribution of scores over seeds: RAIL-KD, Table 5; CR-ILD, Figures 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import levene

__all__ = ["FEWEST", "SeedSpread", "equal_spread", "seed_spread"]

FEWEST = 5
"""Fewer seeds than this say nothing about a difference between spreads."""


@dataclass(frozen=True, kw_only=True)
class SeedSpread:
    """The scores of one method over seeds: mean, standard deviation (None of one seed), quartiles."""

    scores: tuple[float, ...]
    mean: float
    deviation: float | None
    quartiles: tuple[float, float, float]


def seed_spread(scores: Sequence[float]) -> SeedSpread:
    """Return the distribution of scores."""
    found = np.asarray(scores, dtype=np.float64)
    low, middle, high = (float(one) for one in np.quantile(found, [0.25, 0.5, 0.75]))
    deviation = float(found.std(ddof=1)) if len(found) > 1 else None
    return SeedSpread(
        scores=tuple(map(float, scores)), mean=float(found.mean()), deviation=deviation, quartiles=(low, middle, high)
    )


def equal_spread(groups: Mapping[str, Sequence[float]]) -> float | None:
    """Return the p value of equal variances (Brown and Forsythe); None with fewer than `FEWEST` seeds in a group."""
    if len(groups) < 2 or any(len(scores) < FEWEST for scores in groups.values()):
        return None
    if all(np.ptp(scores) == 0 for scores in groups.values()):
        return 1.0
    return float(levene(*groups.values(), center="median").pvalue)
