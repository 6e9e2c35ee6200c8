"""Ranks, Friedman's and Wilcoxon's tests and groups, against SciPy and brute force over all signs and all sets."""

from __future__ import annotations

import re
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy import stats

from stillery.study.ranks import average_ranks, cliques, critical_difference, friedman, guard, signed_rank

RANDOM = np.random.default_rng(5)


@given(some.integers(0, 10_000), some.sampled_from([2, 3, 50]))
def test_ranks_are_scipys(seed: int, different: int) -> None:
    scores = np.random.default_rng(seed).integers(0, different, (4, 5)).astype(float)
    assert (average_ranks(scores) == stats.rankdata(-scores, axis=0)).all()


@given(some.integers(0, 10_000), some.sampled_from([2, 4, 100]))
def test_friedman_is_scipys(seed: int, different: int) -> None:
    scores = np.random.default_rng(seed).integers(0, different, (4, 6)).astype(float)
    if np.ptp(scores, axis=0).max() == 0:
        assert friedman(scores) == 1.0
    else:
        assert friedman(scores) == pytest.approx(stats.friedmanchisquare(*scores).pvalue)


def by_all_signs(apart: list[float]) -> float:
    """The p value by its definition: the share of all signs whose rank sum is as far from its mean."""
    values = np.array([one for one in apart if one])
    ranks = stats.rankdata(np.abs(values))
    observed = abs(ranks[values > 0].sum() - ranks.sum() / 2)
    sums = [
        sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
        for signs in product((0, 1), repeat=len(ranks))
    ]
    return float(np.mean(np.abs(np.array(sums) - ranks.sum() / 2) >= observed - 1e-9))


@settings(max_examples=60, deadline=None)
@given(some.lists(some.integers(-4, 4), min_size=1, max_size=9))
def test_signed_ranks_by_all_signs_with_ties_and_zeros(apart: list[int]) -> None:
    expected = by_all_signs(list(map(float, apart))) if any(apart) else 1.0
    assert signed_rank(apart) == pytest.approx(expected)


def test_signed_ranks_are_scipys_exact_test() -> None:
    for size in (5, 8, 20):
        apart = RANDOM.normal(0.4, 1, size)
        assert signed_rank(apart.tolist()) == pytest.approx(stats.wilcoxon(apart, method="exact").pvalue)


def test_the_guard_is_the_smallest_p_there_can_be() -> None:
    for count in range(1, 9):
        assert guard(count, 1).smallest == pytest.approx(signed_rank(list(range(1, count + 1))))
    # 0.05 / 10 comparisons: 2 / 2^8 = 0.0078 is too much, 2 / 2^9 = 0.0039 is not.
    assert guard(4, 10).needed == 9
    assert guard(9, 10).reached is False
    assert guard(8, 10).reached is True


@settings(max_examples=60, deadline=None)
@given(some.sets(some.sampled_from(list(combinations(range(6), 2)))))
def test_groups_are_all_largest_cliques(pairs: set[tuple[int, int]]) -> None:
    edges = {frozenset(pair) for pair in pairs}
    whole = [
        set(chosen)
        for size in range(1, 7)
        for chosen in combinations(range(6), size)
        if all(frozenset(pair) in edges for pair in combinations(chosen, 2))
    ]
    largest = [one for one in whole if not any(one < other for other in whole)]
    found = cliques(list(range(6)), edges)
    assert sorted(map(sorted, found)) == sorted(map(sorted, largest))


def test_a_worked_example_of_ranks() -> None:
    # Table 6 of Demšar (2006), C4.5 and three variants on 14 data sets: average ranks and Friedman's chi-squared 9.28.
    scores = np.array(
        [
            [0.763, 0.599, 0.954, 0.628, 0.882, 0.936, 0.661, 0.583, 0.775, 1.000, 0.940, 0.619, 0.972, 0.957],
            [0.768, 0.591, 0.971, 0.661, 0.888, 0.931, 0.668, 0.583, 0.838, 1.000, 0.962, 0.666, 0.981, 0.978],
            [0.771, 0.590, 0.968, 0.654, 0.886, 0.916, 0.609, 0.563, 0.866, 1.000, 0.965, 0.614, 0.9751, 0.946],
            [0.798, 0.569, 0.967, 0.657, 0.898, 0.931, 0.685, 0.625, 0.875, 1.000, 0.962, 0.669, 0.975, 0.970],
        ]
    )
    assert average_ranks(scores).mean(axis=1) == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    # The paper leaves out the correction for ties, which makes the statistic a little larger.
    assert 0.01 < friedman(scores) < stats.chi2.sf(9.28, 3)


def test_pairs_are_those_of_scikit_posthocs() -> None:
    # scikit-posthocs 0.17.1: posthoc_wilcoxon(..., p_adjust="holm").
    random = np.random.default_rng(0)
    random.normal(size=40)
    scores = random.normal(size=(4, 10)) + np.arange(4)[:, None] * 0.7
    found = critical_difference(list("abcd"), scores)
    adjusted = {f"{pair.first} {pair.second}": pair.adjusted for pair in found.pairs}
    assert adjusted == pytest.approx(
        {"d c": 0.392578, "d a": 0.023438, "d b": 0.048828, "c a": 0.392578, "c b": 0.335938, "a b": 0.492188}, abs=1e-6
    )


def test_the_documents_say_how_many_tasks_are_needed() -> None:
    page = (Path(__file__).parents[2] / "docs/statistics.md").read_text(encoding="utf-8")
    rows = {
        name: [int(cell) for cell in cells.split("|") if cell.strip()]
        for name, cells in re.findall(r"^\| (methods|pairs|tasks needed) \|((?: \d+ \|)+)$", page, flags=re.MULTILINE)
    }
    assert len(rows["methods"]) > 3
    assert rows["pairs"] == [count * (count - 1) // 2 for count in rows["methods"]]
    assert rows["tasks needed"] == [guard(1, pairs).needed for pairs in rows["pairs"]]


def far_apart(tasks: int) -> np.ndarray:
    """Two methods that are alike, and two that are worse by far and alike."""
    hard = RANDOM.normal(70, 10, tasks)
    return hard + np.array([[5], [5], [0], [0]]) + RANDOM.normal(0, 0.5, (4, tasks))


def test_methods_that_differ_are_in_different_groups() -> None:
    found = critical_difference(["a", "b", "c", "d"], far_apart(12))
    assert [set(group) for group in found.groups] == [{"a", "b"}, {"c", "d"}]
    assert found.friedman is not None and found.friedman < 0.001
    assert not found.guard.reached


def test_with_few_tasks_all_are_one_group_and_the_guard_says_why() -> None:
    found = critical_difference(["a", "b", "c", "d"], far_apart(7))
    assert [set(group) for group in found.groups] == [{"a", "b", "c", "d"}]
    # Six comparisons need 0.0083.
    assert (found.guard.reached, found.guard.needed) == (True, 8)


@settings(max_examples=25, deadline=None)
@given(some.integers(0, 1000), some.permutations(range(4)), some.permutations(range(9)))
def test_the_order_of_methods_and_tasks_does_not_matter(seed: int, methods: list[int], tasks: list[int]) -> None:
    scores = np.random.default_rng(seed).normal(size=(4, 9)) + np.array([[0], [0], [2], [4]])
    names = np.array(["a", "b", "c", "d"])
    one = critical_difference(names.tolist(), scores)
    other = critical_difference(names[methods].tolist(), scores[methods][:, tasks])
    assert one.groups == other.groups
    assert one.ranks == other.ranks
    apart = [{frozenset((pair.first, pair.second)): pair.adjusted for pair in each.pairs} for each in (one, other)]
    assert apart[0] == pytest.approx(apart[1])
