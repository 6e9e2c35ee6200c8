"""How far layer strategies lie apart: the highest mean minus the lowest, and how much of that is noise of the seeds.

The spread of measured means is larger than that of the true ones: noise alone makes one row the highest. So the
interval does not resample the spread itself. Its lower end takes off what the means of all strategies may move against
each other (the upper quantile of the range of their deviations); its upper end adds what one pair may. Whichever
strategies are truly the highest and the lowest, both ends then hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from stillery.study.compare import LEVEL
from stillery.study.resample import TaskDraws

__all__ = ["Noise", "Spread", "seed_noise", "smallest_p", "spread"]

Array = NDArray[np.float64]

MOST_ENUMERATED = 20_000
SHUFFLES = 10_000


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The spread that seeds alone would give, if strategies made no difference.

    Attributes:
        mean: its mean over permutations of the strategies within each seed.
        high: the spread that it stays below with the level's probability.
        p: the share of permutations with a spread as large as the observed one, or larger.
        adjusted: `p` by Holm's method over the tasks; None before tasks are put together.
        smallest: the smallest p there could be with so many seeds and strategies.
        exact: whether all permutations were tried.
    """

    mean: float
    high: float
    p: float
    smallest: float
    exact: bool
    adjusted: float | None = None


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The spread over strategies on one task.

    Attributes:
        task: the task.
        strategies: the rows that are compared.
        missing: strategies without a score, which are left out.
        seeds: the seeds that all of them have.
        highest, lowest: the strategies with the highest and the lowest mean.
        value: the difference of their means, in points.
        low, high: its interval; None where nothing could be resampled.
        noise: what seeds alone would give; None with fewer than two seeds.
    """

    task: str
    strategies: tuple[str, ...]
    missing: tuple[str, ...]
    seeds: tuple[int, ...]
    highest: str
    lowest: str
    value: float
    low: float | None
    high: float | None
    noise: Noise | None


def spread(draws: TaskDraws, strategies: Sequence[str], *, level: float = LEVEL) -> Spread | None:
    """The spread over strategies; None with fewer than two, or where they share no seed."""
    there = [row for row in strategies if row in draws.rows]
    seeds = draws.common(there) if len(there) > 1 else ()
    if not seeds:
        return None
    scores = draws.scores(there, seeds)
    means = scores.mean(axis=1)
    value = float(np.ptp(means))
    low = high = None
    if draws.drawn is not None or (len(seeds) > 1 and np.ptp(scores - means[:, None]) > 0):
        low, high = _interval(draws.means(there, seeds) - means, value, level)
    order = sorted(range(len(there)), key=lambda place: (-means[place], there[place]))
    return Spread(
        task=draws.task,
        strategies=tuple(there),
        missing=tuple(row for row in strategies if row not in there),
        seeds=seeds,
        highest=there[order[0]],
        lowest=there[order[-1]],
        value=value,
        low=low,
        high=high,
        noise=seed_noise(scores, level=level, seed=draws.seed) if len(seeds) > 1 else None,
    )


def _interval(deviations: Array, value: float, level: float) -> tuple[float, float]:
    """The interval of a spread from the deviations of the means `[draws, strategies]` from what was observed."""
    tail = (1 + level) / 2
    together = float(np.quantile(np.ptp(deviations, axis=1), tail))
    pairs = deviations[:, :, None] - deviations[:, None, :]
    one = float(np.quantile(pairs, tail, axis=0).max())
    return max(0.0, value - together), value + one


def smallest_p(strategies: int, seeds: int) -> float:
    """The smallest p that permuting strategies within seeds can give.

    The spread is largest where all seeds have the same highest and the same lowest strategy; each seed after the first
    does so in one of `strategies * (strategies - 1)` orders of these two.

    >>> smallest_p(2, 5) == 2 / 2**5
    True
    """
    return float((strategies * (strategies - 1)) ** -(seeds - 1.0))


def seed_noise(scores: Array, *, level: float = LEVEL, shuffles: int = SHUFFLES, seed: int = 0) -> Noise:
    """The spread of means where the strategies `[strategies, seeds]` are permuted within each seed.

    All permutations are tried where there are at most 20,000, else so many random ones as asked for.
    """
    strategies, seeds = scores.shape
    # Permuting all seeds alike changes nothing, so the first seed keeps its order.
    count = math.factorial(strategies) ** (seeds - 1)
    exact = count <= MOST_ENUMERATED
    # Sorted, so that the order of strategies does not matter where permutations are drawn.
    columns = np.sort(scores, axis=0)
    if exact:
        orders = np.array(list(permutations(range(strategies))))
        sums = np.stack(
            [
                columns[:, 0] + sum(columns[order, place] for place, order in enumerate(chosen, start=1))
                for chosen in product(orders, repeat=seeds - 1)
            ]
        )
    else:
        random = np.random.default_rng([seed, strategies, seeds])
        tiled = np.broadcast_to(columns.T, (shuffles, seeds, strategies)).copy()
        sums = random.permuted(tiled, axis=2).sum(axis=1)
    found = np.ptp(sums, axis=1) / seeds
    # Rounding must not make a permutation that gives the same spread a smaller one.
    as_large = int((found >= np.ptp(scores.mean(axis=1)) - 1e-9).sum())
    p = as_large / len(found) if exact else (1 + as_large) / (1 + len(found))
    return Noise(
        mean=float(found.mean()),
        high=float(np.quantile(found, level)),
        p=p,
        smallest=smallest_p(strategies, seeds),
        exact=exact,
    )
