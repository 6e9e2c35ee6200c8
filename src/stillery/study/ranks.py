"""Which methods can be told apart over tasks: Friedman's test, then Wilcoxon's on each pair with Holm's adjustment.

What a critical-difference diagram draws: the average ranks, and bars over groups that cannot be told apart. See Demšar
(2006) and, for Wilcoxon and Holm in place of Nemenyi's test, Benavoli et al. (2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from stillery.study.compare import LEVEL, holm

__all__ = [
    "CriticalDifference",
    "Guard",
    "Pair",
    "average_ranks",
    "cliques",
    "critical_difference",
    "friedman",
    "guard",
    "signed_rank",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Guard:
    """Whether a test on n pairs can find anything at all.

    Attributes:
        count: the pairs there are: tasks, or seeds.
        comparisons: how many pairs of methods are compared at once.
        smallest: the smallest two-sided p that so many pairs can give, 2 / 2^n.
        below: what it has to be at most, with Holm's adjustment, for any of the comparisons to be significant.
        needed: how many pairs that takes.
    """

    count: int
    comparisons: int
    smallest: float
    below: float
    needed: int

    @property
    def reached(self) -> bool:
        """Whether nothing can be significant, whatever the scores are."""
        return self.smallest > self.below


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two methods over tasks: the p value of Wilcoxon's signed-rank test, and that adjusted over all pairs."""

    first: str
    second: str
    p: float
    adjusted: float


@dataclass(frozen=True, kw_only=True)
class CriticalDifference:
    """What a critical-difference diagram draws.

    Attributes:
        ranks: the average rank of each method, 1 is best, in ascending order.
        friedman: the p value of Friedman's test that all methods are alike; None with two methods.
        pairs: every pair of methods.
        groups: the largest sets of methods in which no pair can be told apart, best first; a method that is alone in
            its set can be distinguished from all others.
        guard: whether the tasks are enough.
    """

    ranks: tuple[tuple[str, float], ...]
    friedman: float | None
    pairs: tuple[Pair, ...]
    groups: tuple[tuple[str, ...], ...]
    guard: Guard


def guard(count: int, comparisons: int, *, level: float = LEVEL) -> Guard:
    """Whether n pairs can reach significance at all.

    >>> guard(5, 1).reached, guard(5, 1).needed
    (True, 6)
    """
    below = (1 - level) / max(1, comparisons)
    needed = 1
    while 2.0 / 2**needed > below:
        needed += 1
    return Guard(
        count=count, comparisons=comparisons, smallest=min(1.0, 2.0 / 2**count), below=below, needed=needed
    )  # fmt: skip


def average_ranks(scores: Array) -> Array:
    """The rank of each method on each task `[..., methods, tasks]`, 1 for the highest score, ties sharing theirs."""
    ours, theirs = scores[..., :, None, :], scores[..., None, :, :]
    # A method is equal to itself, which counts as one half.
    ranks: Array = 0.5 + (theirs > ours).sum(axis=-2) + 0.5 * (theirs == ours).sum(axis=-2)
    return ranks


def friedman(scores: Array) -> float:
    """The p value of Friedman's test (chi-squared, corrected for ties) that methods `[methods, tasks]` are alike."""
    methods, tasks = scores.shape
    ranks = average_ranks(scores)
    spread = float(((ranks.mean(axis=1) - (methods + 1) / 2) ** 2).sum())
    # The variance of ranks within tasks, which ties make smaller than methods * (methods + 1) / 12.
    within = float(((ranks - (methods + 1) / 2) ** 2).sum()) / (tasks * (methods - 1))
    if within == 0:
        return 1.0
    return float(chdtrc(methods - 1, tasks * spread / within))


def signed_rank(apart: Sequence[float]) -> float:
    """The exact two-sided p value of Wilcoxon's signed-rank test; differences of 0 are left out, ties share ranks.

    >>> signed_rank([1.0, 2.0, 3.0, 4.0, 5.0])
    0.0625
    """
    values = np.array([one for one in apart if one != 0], dtype=np.float64)
    if not len(values):
        return 1.0
    sizes = np.abs(values)
    # Twice the rank is a whole number, also where ranks are shared.
    twice = ((sizes[:, None] > sizes).sum(axis=1) * 2 + (sizes[:, None] == sizes).sum(axis=1) + 1).astype(np.int64)
    total = int(twice.sum())
    chance = np.zeros(total + 1)
    chance[0] = 1.0
    for rank in twice:
        moved = np.zeros_like(chance)
        moved[rank:] = chance[: total + 1 - rank]
        chance = (chance + moved) / 2
    positive = int(twice[values > 0].sum())
    return min(1.0, 2 * float(chance[: min(positive, total - positive) + 1].sum()))


def critical_difference(names: Sequence[str], scores: Array, *, level: float = LEVEL) -> CriticalDifference:
    """Average ranks of methods `[methods, tasks]`, and which of them can be told apart.

    Pairs are told apart only where Friedman's test finds that methods differ at all.
    """
    means = average_ranks(scores).mean(axis=1)
    order = sorted(range(len(names)), key=lambda place: (means[place], names[place]))
    pairs = list(combinations(order, 2))
    # Rounded, so that differences that are equal but for the last digit are ties.
    raw = [signed_rank(np.round(scores[first] - scores[second], 9).tolist()) for first, second in pairs]
    adjusted = holm(raw)
    overall = friedman(scores) if len(names) > 2 else None
    different = overall is None or overall <= 1 - level
    alike = {
        frozenset(pair) for pair, p in zip(pairs, adjusted, strict=True) if not different or (p or 0.0) > 1 - level
    }
    groups = [sorted(group, key=order.index) for group in cliques(order, alike)]
    return CriticalDifference(
        ranks=tuple((names[place], float(means[place])) for place in order),
        friedman=overall,
        pairs=tuple(
            Pair(first=names[first], second=names[second], p=p, adjusted=holms or 0.0)
            for (first, second), p, holms in zip(pairs, raw, adjusted, strict=True)
        ),
        groups=tuple(
            tuple(names[place] for place in group)
            for group in sorted(groups, key=lambda group: [order.index(place) for place in group])
        ),
        guard=guard(scores.shape[1], len(pairs), level=level),
    )


def cliques(nodes: Sequence[int], edges: set[frozenset[int]]) -> list[set[int]]:
    """The largest sets of nodes that are all joined by edges (Bron and Kerbosch's algorithm)."""
    joined = {node: {other for other in nodes if frozenset((node, other)) in edges} - {node} for node in nodes}
    found: list[set[int]] = []

    def extend(chosen: set[int], open_: set[int], done: set[int]) -> None:
        if not open_ and not done:
            found.append(chosen)
            return
        pivot = max(open_ | done, key=lambda node: len(joined[node] & open_))
        for node in sorted(open_ - joined[pivot]):
            extend(chosen | {node}, open_ & joined[node], done & joined[node])
            open_, done = open_ - {node}, done | {node}

    extend(set(), set(nodes), set())
    return found
