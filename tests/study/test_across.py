"""All tasks together, against SciPy and all draws of small cases written out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from making import scored
from scipy import stats

from stillery.study.across import improvement, interquartile_mean, overall
from stillery.study.results import Results, Row

RANDOM = np.random.default_rng(6)


@given(some.lists(some.floats(0, 100), min_size=1, max_size=40))
def test_the_interquartile_mean_is_scipys_trimmed_mean(values: list[float]) -> None:
    assert interquartile_mean(np.array(values)) == pytest.approx(stats.trim_mean(values, 0.25))


@settings(max_examples=30, deadline=None)
@given(some.integers(0, 1000), some.integers(1, 6), some.integers(1, 6))
def test_improvement_is_the_mean_of_mann_whitneys_u(seed: int, ours: int, theirs: int) -> None:
    random = np.random.default_rng(seed)
    left, right = ([random.integers(0, 5, count).astype(float) for _ in range(3)] for count in (ours, theirs))
    expected = np.mean(
        [stats.mannwhitneyu(one, other).statistic / (ours * theirs) for one, other in zip(left, right, strict=True)]
    )
    assert improvement(left, right) == pytest.approx(expected)
    assert improvement(right, left) == pytest.approx(1 - expected)


def test_intervals_are_those_of_all_draws() -> None:
    scores = {
        "x": {"kd": [70.0, 74.0, 73.0], "pkd": [72.0, 71.0, 76.0]},
        "y": {"kd": [50.0, 53.0, 51.0], "pkd": [49.0, 55.0, 54.0]},
    }
    found = overall(scored(scores), ["kd"], draws=20000)
    assert found is not None
    # 27 draws of three seeds for each of two tasks; both methods are drawn alike.
    draws = [
        (
            [[scores[task][row][seed] for seed in seeds] for row in ("kd", "pkd")]
            for task, seeds in zip("xy", one, strict=True)
        )
        for one in product(product(range(3), repeat=3), repeat=2)
    ]
    every = [np.array(list(one)) for one in draws]
    means = [stats.trim_mean(one[:, 1].ravel(), 0.25) for one in every]
    ranks = [stats.rankdata(-one.mean(axis=2), axis=1)[:, 1].mean() for one in every]
    chances = [np.mean([stats.mannwhitneyu(task[1], task[0]).statistic / 9 for task in one]) for one in every]
    for estimate, values in (
        (found.mean["pkd"], means),
        (found.rank["pkd"], ranks),
        (found.improvement["kd"]["pkd"], chances),
    ):
        assert (estimate.low, estimate.high) == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])), abs=0.12)
    assert found.mean["pkd"].value == pytest.approx(stats.trim_mean(scores["x"]["pkd"] + scores["y"]["pkd"], 0.25))
    assert found.rank["pkd"].value == 1.0


def test_numbers_are_those_of_rliable() -> None:
    # rliable 1.2.0: aggregate_iqm with get_interval_estimates (20,000 draws), probability_of_improvement (4,000).
    random = np.random.default_rng(0)
    ours, theirs = random.normal(70, 3, (5, 4)), random.normal(71, 3, (5, 4))
    scores = {f"t{task}": {"x": ours[:, task], "y": theirs[:, task]} for task in range(4)}
    found = overall(scored(scores), ["y"], draws=20000)
    assert found is not None
    mean, chance = found.mean["x"], found.improvement["y"]["x"]
    assert mean.value == pytest.approx(69.47894556)
    assert (mean.low, mean.high) == pytest.approx((68.465, 70.489), abs=0.05)
    assert chance.value == pytest.approx(0.26)
    # There the methods are drawn apart from each other, here alike.
    assert (chance.low, chance.high) == pytest.approx((0.12, 0.41), abs=0.04)


def test_a_run_that_failed_on_a_hard_task_makes_no_method_better() -> None:
    easy, hard = [90.0, 91.0, 92.0, 93.0], [40.0, 41.0, 42.0, 43.0]
    whole = {"easy": {"kd": easy, "pkd": easy}, "hard": {"kd": hard, "pkd": [*hard[:2], np.nan, np.nan]}}
    found = overall(scored(whole), ["kd"])
    assert found is not None
    assert found.mean["kd"] == found.mean["pkd"]
    assert found.rank["kd"].value == found.rank["pkd"].value == 1.5
    assert found.improvement["kd"]["pkd"].value == 0.5
    assert dict(found.fewer) == {"hard": 2}


def test_tasks_and_methods_without_scores_are_left_out_and_named() -> None:
    scores = {
        "x": {"kd": [70, 71], "pkd": [72, 73], "never": [np.nan, None]},
        "y": {"kd": [50, 51], "pkd": [np.nan, np.nan]},
        "z": {"kd": [60, 61], "pkd": [62, 63], "big": [99, 99]},
    }
    found = overall(scored(scores, rows=[Row(name="big", teacher=True)]), ["kd"])
    assert found is not None
    assert (found.rows, found.tasks) == (("kd", "pkd"), ("x", "z"))
    assert (found.left_out, found.without) == (("y",), ("never",))
    assert overall(scored({"x": {"kd": [1, None], "pkd": [None, 2]}}), ["kd"]) is None


def test_one_seed_has_no_intervals() -> None:
    found = overall(scored({"x": {"kd": [70], "pkd": [72]}, "y": {"kd": [50], "pkd": [51]}}), ["kd"])
    assert found is not None
    every = [*found.mean.values(), *found.rank.values(), *found.improvement["kd"].values()]
    assert all(one.low is None and one.high is None for one in every)


def test_the_order_of_tasks_methods_and_seeds_does_not_matter() -> None:
    scores = {task: {row: RANDOM.normal(70, 3, 4) for row in "abc"} for task in "xyz"}
    one = scored(scores)
    other = Results(tasks=one.tasks[::-1], rows=one.rows[::-1], seeds=(2, 0, 3, 1), cells=one.cells)
    first, second = overall(one, ["a"], draws=300), overall(other, ["a"], draws=300)
    assert first is not None
    assert second is not None
    for name in "abc":
        assert first.mean[name] == second.mean[name]
        assert first.rank[name].value == pytest.approx(second.rank[name].value)
    assert dict(first.improvement["a"]) == dict(second.improvement["a"])
