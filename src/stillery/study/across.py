"""Several tasks together: interquartile mean, average rank and probability of improvement, with intervals.

Agarwal et al. (2021), "Deep reinforcement learning at the edge of the statistical precipice": runs are resampled within
each task (a stratified bootstrap); here with the same draws for all methods, because they share their seeds.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillery.study.compare import LEVEL
from stillery.study.ranks import CriticalDifference, average_ranks, critical_difference
from stillery.study.resample import DRAWS, SEED
from stillery.study.results import Results, Row

__all__ = ["Estimate", "Overall", "Runs", "improvement", "interquartile_mean", "overall"]

Array = NDArray[np.float64]
Runs = Sequence[Array]
"""The scores of one method: those of each task, over its seeds, on the last axis."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its interval; None where draws give one number only, which tells nothing of how sure it is."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Overall:
    """All tasks together.

    Attributes:
        rows: the methods that are compared.
        tasks: the tasks on which all of them have a score of the same seed; only these count.
        left_out: tasks on which they have none.
        without: methods without a score on any task.
        fewer: tasks on which some method lacks a run, with how many seeds all have; no others of any method count.
        mean: the interquartile mean of each method's runs on all tasks, in points.
        rank: its average rank over tasks.
        improvement: by baseline, the probability that a run of a method is better than one of the baseline on a task.
        difference: which methods can be told apart, over tasks; None with fewer than two methods or tasks.
    """

    rows: tuple[str, ...]
    tasks: tuple[str, ...]
    left_out: tuple[str, ...]
    without: tuple[str, ...]
    fewer: Mapping[str, int]
    mean: Mapping[str, Estimate]
    rank: Mapping[str, Estimate]
    improvement: Mapping[str, Mapping[str, Estimate]]
    difference: CriticalDifference | None


def interquartile_mean(scores: Array) -> Array:
    """The mean of the middle half of all runs, on the last axis: a quarter of them (rounded down) is cut at each end.

    >>> float(interquartile_mean(np.array([0.0, 4.0, 6.0, 100.0])))
    5.0
    """
    count = scores.shape[-1]
    cut = count // 4
    middle: Array = np.sort(scores, axis=-1)[..., cut : count - cut].mean(axis=-1)
    return middle


def improvement(ours: Runs, theirs: Runs) -> Array:
    """The probability that a run of one method is better than one of another, averaged over tasks; ties count half."""
    shares = []
    for left, right in zip(ours, theirs, strict=True):
        more = left[..., :, None] > right[..., None, :]
        same = left[..., :, None] == right[..., None, :]
        shares.append((more + 0.5 * same).mean(axis=(-2, -1)))
    found: Array = np.mean(shares, axis=0)
    return found


def overall(
    results: Results,
    baselines: Sequence[str] = (),
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = SEED,
) -> Overall | None:
    """What all tasks together say of the students; None where there is no task on which all have a score."""
    there = [row for row in results.students if any(results.scores(task.name, row) for task in results.tasks)]
    seeds = {task.name: _common(results, task.name, there) for task in results.tasks}
    tasks = [name for name, common in seeds.items() if common]
    if not tasks:
        return None
    # In the order of their names, so that the order of the table does not matter.
    names = [row.name for row in there]
    runs = {
        row.name: [np.array([results.scores(task, row)[one] for one in seeds[task]]) for task in sorted(tasks)]
        for row in there
    }
    drawn = _Drawn(runs, sorted(tasks), level, draws, seed)
    means = np.array([[one.mean() for one in drawn.runs[name]] for name in names])
    resampled = np.stack([drawn.resampled_means(name) for name in names], axis=1)
    ranks = average_ranks(resampled).mean(axis=-1)
    return Overall(
        rows=tuple(names),
        tasks=tuple(tasks),
        left_out=tuple(task.name for task in results.tasks if task.name not in tasks),
        without=tuple(row.name for row in results.students if row not in there),
        fewer={
            task: len(seeds[task])
            for task in tasks
            if any(len(seeds[task]) < len(results.planned(row)) for row in there)
        },
        mean={name: drawn.estimate(lambda runs: interquartile_mean(np.concatenate(runs, -1)), name) for name in names},
        rank={
            name: _estimate(float(value), ranks[:, place], level)
            for place, (name, value) in enumerate(zip(names, average_ranks(means).mean(axis=1), strict=True))
        },
        improvement={
            baseline: {name: drawn.improvement(name, baseline) for name in names if name != baseline}
            for baseline in baselines
            if baseline in names
        },
        difference=critical_difference(names, means, level=level) if len(names) > 1 and len(tasks) > 1 else None,
    )


def _common(results: Results, task: str, rows: Sequence[Row]) -> list[int]:
    """The seeds that all rows have a score for; with others a hard task would weigh less where a run of it failed."""
    found = [set(results.scores(task, row)) for row in rows]
    return sorted(set.intersection(*found)) if found else []


class _Drawn:
    """The runs of each student on some tasks, and which of them each draw takes."""

    def __init__(
        self, runs: Mapping[str, list[Array]], tasks: Sequence[str], level: float, draws: int, seed: int
    ) -> None:
        self.runs, self.tasks, self.level, self.draws, self.seed = runs, tasks, level, draws, seed

    def resampled(self, row: str) -> list[Array]:
        """The runs of a row on each task in each draw, `[draws, runs]`, drawn alike for all rows."""
        found = []
        for task, runs in zip(self.tasks, self.runs[row], strict=True):
            random = np.random.default_rng([self.seed, zlib.crc32(task.encode()), 2, len(runs)])
            found.append(runs[random.integers(0, len(runs), (self.draws, len(runs)))])
        return found

    def resampled_means(self, row: str) -> Array:
        """The mean of a row on each task in each draw, `[draws, tasks]`."""
        return np.stack([runs.mean(axis=-1) for runs in self.resampled(row)], axis=-1)

    def estimate(self, statistic: Callable[[Runs], Array], row: str) -> Estimate:
        """A statistic of a row's runs, with the interval of its draws."""
        return _estimate(float(statistic(self.runs[row])), statistic(self.resampled(row)), self.level)

    def improvement(self, row: str, baseline: str) -> Estimate:
        """The probability that a row improves on a baseline."""
        drawn = improvement(self.resampled(row), self.resampled(baseline))
        return _estimate(float(improvement(self.runs[row], self.runs[baseline])), drawn, self.level)


def _estimate(value: float, drawn: Array, level: float) -> Estimate:
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    if high - low < 1e-9:
        return Estimate(value=value, low=None, high=None)
    return Estimate(value=value, low=float(low), high=float(high))
