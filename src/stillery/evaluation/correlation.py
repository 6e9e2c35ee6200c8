"""Pearson and Spearman correlation, defined as 0 where they have no value."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["pearson", "spearman"]


def pearson(left: NDArray[Any], right: NDArray[Any]) -> float:
    """Pearson correlation of two series `[n]`, 0 where it is undefined (a constant series, fewer than two values)."""
    return _defined(left, right, "pearsonr")


def spearman(left: NDArray[Any], right: NDArray[Any]) -> float:
    """Spearman rank correlation of two series `[n]`, 0 where it is undefined."""
    return _defined(left, right, "spearmanr")


def _defined(left: NDArray[Any], right: NDArray[Any], correlate: str) -> float:
    # Imported here because it takes most of a second, which only correlations need.
    from scipy import stats

    left, right = left.astype(np.float64), right.astype(np.float64)
    if len(left) < 2 or np.ptp(left) == 0 or np.ptp(right) == 0:
        return 0.0
    # SciPy warns that the correlation of a nearly constant series is dominated by rounding errors; it is still used.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = float(getattr(stats, correlate)(left, right).statistic)
    return value if math.isfinite(value) else 0.0
