"""One task: the scores of a row over seeds, differences between rows, and the rows not distinguished from the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from stillery.study.resample import TaskDraws
from stillery.study.results import Results, Row

__all__ = [
    "LEAST_SEEDS",
    "LEVEL",
    "Best",
    "Comparison",
    "Summary",
    "against",
    "best",
    "bootstrap_p",
    "compare",
    "holm",
    "summarise",
]

LEVEL = 0.95
LEAST_SEEDS = 3
"""With fewer seeds no row is said to be better than another: how far seeds scatter is then hardly known."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The scores of a row on a task: mean, standard deviation and t interval over the seeds there are.

    `deviation` and the interval are None with fewer than two seeds, the mean with none.
    """

    seeds: tuple[int, ...]
    planned: int
    failed: int
    mean: float | None
    deviation: float | None
    low: float | None
    high: float | None

    @property
    def complete(self) -> bool:
        """Whether there is a score for every planned seed."""
        return len(self.seeds) == self.planned


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One row minus another on a task, over the seeds that both have.

    Attributes:
        row: the row.
        other: the row it is compared with.
        seeds: the seeds of the pairs.
        value: the mean difference in points.
        low, high: its interval by the bootstrap; None where nothing could be resampled.
        p: two-sided, by the bootstrap; None with fewer than two seeds, or where nothing could be resampled.
        adjusted: `p` by Holm's method over the family of comparisons.
    """

    row: str
    other: str
    seeds: tuple[int, ...]
    value: float
    low: float | None
    high: float | None
    p: float | None
    adjusted: float | None = None

    def told_apart(self, level: float = LEVEL) -> bool:
        """Whether the difference is more than chance explains, after Holm and with enough seeds to say so."""
        return self.adjusted is not None and self.adjusted <= 1 - level and len(self.seeds) >= LEAST_SEEDS


@dataclass(frozen=True, kw_only=True)
class Best:
    """The row with the highest mean, and all those that cannot be distinguished from it (which have it among them)."""

    row: str
    tied: tuple[str, ...]


def summarise(results: Results, task: str, row: Row, *, level: float = LEVEL) -> Summary:
    """Mean, standard deviation (n - 1) and t interval of a row's scores; failed and missing seeds are counted."""
    found = results.scores(task, row)
    values = np.array(list(found.values()))
    mean = float(values.mean()) if len(values) else None
    deviation = low = high = None
    if mean is not None and len(values) > 1:
        deviation = float(values.std(ddof=1))
        half = float(stdtrit(len(values) - 1, (1 + level) / 2)) * deviation / len(values) ** 0.5
        low, high = mean - half, mean + half
    return Summary(
        seeds=tuple(found), planned=len(results.planned(row)), failed=len(results.failed(task, row)), mean=mean,
        deviation=deviation, low=low, high=high,
    )  # fmt: skip


def compare(draws: TaskDraws, row: str, other: str, *, level: float = LEVEL) -> Comparison | None:
    """One row minus another with an interval and p value by the bootstrap; None where they share no seed."""
    if row not in draws.rows or other not in draws.rows:
        return None
    seeds = draws.common([row, other])
    if not seeds:
        return None
    apart = np.subtract(*draws.scores([row, other], seeds))
    value = float(apart.mean())
    # Without examples to resample, seeds that all differ by the same leave nothing to judge the difference by.
    if draws.drawn is None and (len(seeds) < 2 or np.ptp(apart) == 0):
        return Comparison(row=row, other=other, seeds=seeds, value=value, low=None, high=None, p=None)
    means = draws.means([row, other], seeds)
    # Rounded, so that equal scores that were added in another order stay equal.
    drawn = np.round(means[:, 0] - means[:, 1], 9)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    p = bootstrap_p(drawn) if len(seeds) > 1 else None
    return Comparison(row=row, other=other, seeds=seeds, value=value, low=float(low), high=float(high), p=p)


def bootstrap_p(drawn: NDArray[np.float64]) -> float:
    """Two-sided p value of a difference of 0: twice the smaller share of draws on one side of it, never 0.

    >>> bootstrap_p(np.array([1.0, 2.0, 3.0]))
    0.5
    """
    sides = [int((drawn <= 0).sum()), int((drawn >= 0).sum())]
    return min(1.0, 2 * (1 + min(sides)) / (1 + len(drawn)))


def holm(values: Sequence[float | None]) -> list[float | None]:
    """P values adjusted by Holm's step-down method; those that are None are no part of the family.

    >>> holm([0.25, 0.125, None])
    [0.25, 0.25, None]
    """
    known = sorted((value, place) for place, value in enumerate(values) if value is not None)
    found: list[float | None] = [None] * len(values)
    largest = 0.0
    for step, (value, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - step) * value))
        found[place] = largest
    return found


def against(draws: TaskDraws, rows: Sequence[str], baseline: str, *, level: float = LEVEL) -> tuple[Comparison, ...]:
    """Each row minus the baseline, with p values adjusted over the rows."""
    found = [compare(draws, row, baseline, level=level) for row in rows if row != baseline]
    return _adjusted([one for one in found if one is not None])


def best(draws: TaskDraws, rows: Sequence[str], *, level: float = LEVEL) -> Best | None:
    """The row with the highest mean and those that cannot be distinguished from it; None where no row has a score.

    Which row is best is known only after looking, so the p values are adjusted over all pairs of rows.
    """
    there = [row for row in rows if row in draws.rows]
    if not there:
        return None
    means = {row: float(np.nanmean(draws.scores([row], draws.seeds))) for row in there}
    # Of equal ones the first by name, so that the order of the rows does not matter.
    top = min(there, key=lambda row: (-means[row], row))
    pairs = [compare(draws, *pair, level=level) for pair in combinations(sorted(there), 2)]
    apart = {
        frozenset((one.row, one.other)) for one in _adjusted([pair for pair in pairs if pair]) if one.told_apart(level)
    }
    tied = tuple(row for row in there if row == top or frozenset((row, top)) not in apart)
    return Best(row=top, tied=tied)


def _adjusted(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    adjusted = holm([one.p for one in comparisons])
    return tuple(replace(one, adjusted=p) for one, p in zip(comparisons, adjusted, strict=True))
