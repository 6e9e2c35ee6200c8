"""Where a student and its teacher disagree: calibration, confidence, length, labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

__all__ = ["Reliability", "Share", "reliability", "share", "shares_by"]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reliability:
    """Confidence and accuracy in equal bins of confidence between 0 and 1, and the expected calibration error.

    Empty bins are NaN. The error is the mean over examples of the distance between the confidence and the accuracy of
    their bin.
    """

    confidence: Array
    accuracy: Array
    examples: NDArray[np.int64]
    error: float


def reliability(confidence: Array, right: NDArray[np.bool_], bins: int = 10) -> Reliability:
    """Return the reliability of predictions of these confidences, which are right or wrong."""
    place = np.clip((confidence * bins).astype(int), 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(place, confidence, bins) / counts
        accuracy = np.bincount(place, right.astype(np.float64), bins) / counts
    filled = counts > 0
    error = float((counts[filled] * np.abs(mean - accuracy)[filled]).sum() / max(len(confidence), 1))
    return Reliability(confidence=mean, accuracy=accuracy, examples=counts, error=error)


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share of examples with its 95% interval (Wilson)."""

    name: str
    count: int
    examples: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share."""
        return self.count / self.examples


def share(name: str, chosen: NDArray[np.bool_]) -> Share:
    """Return the share of chosen examples."""
    count, examples = int(chosen.sum()), len(chosen)
    interval = binomtest(count, examples).proportion_ci(method="wilson")
    return Share(name=name, count=count, examples=examples, low=float(interval.low), high=float(interval.high))


def shares_by(groups: Mapping[str, NDArray[np.bool_]], chosen: NDArray[np.bool_]) -> Sequence[Share]:
    """Return the share of chosen examples in each group that has any."""
    return [share(name, chosen[among]) for name, among in groups.items() if among.any()]
