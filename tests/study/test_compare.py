"""One task: summaries, the bootstrap of differences, p values and the best, against other ways to compute them."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from making import predicted, scored
from scipy import stats

from stillery.study.compare import against, best, bootstrap_p, compare, holm, summarise
from stillery.study.resample import resample
from stillery.study.results import Results

RANDOM = np.random.default_rng(2)


def test_summaries_are_students_t() -> None:
    values = [80.0, 82.5, 81.0, 79.0]
    results = scored({"task": {"kd": [*values, np.nan]}})
    one = summarise(results, "task", results.rows[0])
    expected = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (one.low, one.high) == pytest.approx(expected)
    assert one.deviation == pytest.approx(np.std(values, ddof=1))
    assert (one.seeds, one.planned, one.failed, one.complete) == ((0, 1, 2, 3), 5, 1, False)


def test_a_summary_of_one_seed_has_no_spread_and_one_of_none_no_mean() -> None:
    results = scored({"task": {"kd": [80.0, None], "pkd": [None, np.nan]}})
    one, none = (summarise(results, "task", row) for row in results.rows)
    assert (one.mean, one.deviation, one.low) == (80.0, None, None)
    assert (none.mean, none.failed, results.missing("task", results.rows[1])) == (None, 1, (0,))


def closed_testing(values: list[float]) -> list[float]:
    """Holm's adjusted p values by their definition: the largest Bonferroni p of all subsets with the hypothesis."""
    places = range(len(values))
    subsets = [one for size in range(1, len(values) + 1) for one in combinations(places, size)]
    return [
        max(min(1.0, len(one) * min(values[each] for each in one)) for one in subsets if place in one)
        for place in places
    ]


@given(some.lists(some.floats(0.0001, 1), min_size=1, max_size=6))
def test_holm_is_closed_testing_with_bonferroni(values: list[float]) -> None:
    assert holm(values) == pytest.approx(closed_testing(values))


def test_holm_leaves_out_what_was_not_tested() -> None:
    assert holm([None, 0.01, None, 0.04]) == [None, pytest.approx(0.02), None, pytest.approx(0.04)]


def test_the_p_value_is_that_of_the_interval() -> None:
    # The interval at level 1 - p ends at 0: as many draws are beyond it as the p value says, and the one of the +1.
    drawn = np.sort(RANDOM.normal(2, 1, 999))
    beyond = int((drawn <= 0).sum())
    assert bootstrap_p(drawn) == pytest.approx(2 * (beyond + 1) / 1000)
    assert bootstrap_p(-drawn) == bootstrap_p(drawn)
    assert bootstrap_p(np.zeros(10)) == 1.0


def test_one_seed_resamples_examples_only() -> None:
    right = {"kd": RANDOM.random((1, 400)) < 0.7, "pkd": RANDOM.random((1, 400)) < 0.75}
    found = compare(resample(predicted(right), "task", draws=4000), "pkd", "kd")
    assert found is not None
    apart = 100 * (right["pkd"][0].astype(float) - right["kd"][0])
    # The normal interval of a mean of paired differences; and no p value, since nothing is known of other trainings.
    half = 1.96 * apart.std() / 20
    assert found.value == pytest.approx(apart.mean())
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.05)
    assert found.p is None
    assert not found.told_apart()


def test_without_predictions_the_interval_is_nearly_that_of_students_t() -> None:
    apart = RANDOM.normal(0.5, 1, 12)
    base = RANDOM.normal(80, 1, 12)
    found = compare(resample(scored({"task": {"kd": base, "pkd": base + apart}}), "task", draws=20000), "pkd", "kd")
    assert found is not None
    expected = stats.t.interval(0.95, 11, loc=apart.mean(), scale=stats.sem(apart))
    assert found.value == pytest.approx(apart.mean())
    assert (found.low, found.high) == pytest.approx(expected, abs=0.1 * (expected[1] - expected[0]))
    assert found.p == pytest.approx(stats.ttest_1samp(apart, 0).pvalue, abs=0.03)


def test_all_draws_of_two_seeds_are_as_they_should_be() -> None:
    # Two seeds are drawn as 00, 01, 10, 11: with half the chance their mean moves by half their difference, times
    # sqrt(2) for the missing variance and sqrt(1 / chi2), which is as often above as below 1 / 0.6745.
    draws = resample(scored({"task": {"kd": [80.0, 80.0], "pkd": [81.0, 83.0]}}), "task", draws=40000)
    moved = np.abs(draws.means(["pkd"], (0, 1))[:, 0] - 82.0)
    assert (moved == 0).mean() == pytest.approx(0.5, abs=0.02)
    assert np.median(moved[moved > 0]) == pytest.approx(np.sqrt(2) / 0.6745, rel=0.05)


def test_examples_are_drawn_alike_for_all_methods_and_seeds() -> None:
    right = RANDOM.random((3, 200)) < 0.8
    draws = resample(predicted({"kd": right, "same": right, "turned": right[::-1]}), "task", draws=300)
    assert draws.drawn is not None
    assert (draws.drawn[:, 0] == draws.drawn[:, 1]).all()
    assert (draws.drawn[:, 0] == draws.drawn[:, 2, ::-1]).all()
    same, turned = (compare(draws, row, "kd") for row in ("same", "turned"))
    assert (same.low, same.high, same.p) == (0.0, 0.0, 1.0)
    # The same models in other places of the table: no difference of the means, but the pairs differ.
    assert turned.value == 0.0
    assert turned.low < 0 < turned.high


def reordered(results: Results, rows: list[int], seeds: list[int]) -> Results:
    kept = {results.rows[place].name for place in rows}
    return Results(
        tasks=results.tasks,
        rows=tuple(results.rows[place] for place in rows),
        seeds=tuple(seeds),
        cells={key: cell for key, cell in reversed(results.cells.items()) if key[1] in kept},
    )


def test_the_order_of_methods_and_seeds_does_not_matter() -> None:
    right = {name: RANDOM.random((4, 100)) < share for name, share in (("none", 0.6), ("kd", 0.7), ("pkd", 0.75))}
    results = predicted(right, "matthews")
    one = resample(results, "task", draws=500)
    other = resample(reordered(results, [2, 0, 1], [3, 1, 0, 2]), "task", draws=500)
    names = ["none", "kd", "pkd"]
    assert against(one, names, "kd") == against(other, names, "kd")
    assert best(one, names) == best(other, names)
    # What a method is compared with does not change its comparison.
    fewer = resample(reordered(results, [0, 1], [0, 1, 2, 3]), "task", draws=500)
    assert compare(one, "none", "kd") == compare(fewer, "none", "kd")


def test_methods_are_compared_on_the_seeds_that_both_have() -> None:
    results = scored({"task": {"kd": [80, 81, 82, 83], "pkd": [None, 83, 83, np.nan], "late": [None, None, None, 9]}})
    draws = resample(results, "task")
    found = compare(draws, "pkd", "kd")
    assert found is not None
    assert (found.seeds, found.value) == ((1, 2), 1.5)
    assert compare(draws, "late", "pkd") is None
    assert compare(draws, "never", "kd") is None


def test_seeds_that_all_say_the_same_give_no_p_value() -> None:
    found = compare(resample(scored({"task": {"kd": [80, 81, 82], "pkd": [81, 82, 83]}}), "task"), "pkd", "kd")
    assert found is not None
    assert (found.value, found.low, found.p, found.told_apart()) == (1.0, None, None, False)


def test_examples_are_resampled_only_where_all_have_the_same() -> None:
    right = RANDOM.random((2, 50)) < 0.8
    results = predicted({"kd": right, "pkd": right})
    cells = dict(results.cells)
    other = predicted({"pkd": right[:, :49]}).cells["task", "pkd", 1]
    assert resample(results, "task").why is None
    for cell, why in (
        (other, "kd, seed 0 and pkd, seed 1 were scored on different examples"),
        (
            predicted({"pkd": right}, gold=np.ones(50, dtype=int)).cells["task", "pkd", 1],
            "kd, seed 0 and pkd, seed 1 were scored on different labels of the same examples",
        ),
        (scored({"task": {"pkd": [1, 2]}}).cells["task", "pkd", 1], "there are no predictions of pkd, seed 1"),
    ):
        changed = Results(
            tasks=results.tasks, rows=results.rows, seeds=(0, 1), cells=cells | {("task", "pkd", 1): cell}
        )
        draws = resample(changed, "task")
        assert (draws.why, draws.drawn) == (why, None)


def test_the_best_is_named_with_all_that_cannot_be_told_from_it() -> None:
    noise = RANDOM.normal(0, 0.1, (4, 6))
    far = {"a": 80 + noise[0], "b": 80.01 + noise[1], "c": 70 + noise[2], "d": 60 + noise[3]}
    draws = resample(scored({"task": far}), "task")
    found = best(draws, list(far))
    assert found is not None
    assert set(found.tied) == {"a", "b"}
    assert found.row == max(("a", "b"), key=lambda name: far[name].mean())
    # The same with two seeds: too few to tell any apart.
    two = {name: values[:2] for name, values in far.items()}
    found = best(resample(scored({"task": two}), "task"), list(two))
    assert found is not None
    assert found.tied == ("a", "b", "c", "d")
    assert best(draws, ["never"]) is None


def holds(seeds: int, deviation: float, own: float, trials: int, random: np.random.Generator) -> float:
    """How often the interval of a difference of 0 holds it; examples differ in difficulty, models in skill.

    `deviation` is how far the skill of models scatters over seeds, `own` how far each model's luck does by example.
    """
    hits = 0
    for _ in range(trials):
        hard = random.normal(-1, 1, 150)
        skill, luck = random.normal(0, deviation, (2, seeds, 1)), random.normal(0, own, (2, seeds, 150))
        right = hard < skill + luck
        found = compare(resample(predicted({"a": right[0], "b": right[1]}), "task", draws=400), "a", "b")
        assert found is not None
        hits += found.low <= 0 <= found.high
    return hits / trials


@pytest.mark.parametrize(("seeds", "deviation", "own"), [(2, 0.3, 0.1), (3, 0.3, 0.1), (5, 0.3, 0.1), (3, 0.0, 0.5)])
def test_intervals_hold_the_truth_as_often_as_they_say(seeds: int, deviation: float, own: float) -> None:
    # 95% of 150 trials are 142.5 +- 2.7; a plain bootstrap of three seeds has 77%.
    assert holds(seeds, deviation, own, 150, np.random.default_rng(seeds)) > 0.9


@settings(max_examples=20, deadline=None)
@given(some.integers(0, 1000), some.floats(-20, 20))
def test_a_shift_of_all_scores_changes_no_difference(seed: int, shift: float) -> None:
    scores = np.random.default_rng(seed).normal(70, 2, (2, 4))
    one, other = (
        compare(resample(scored({"task": {"a": both[0], "b": both[1]}}), "task", draws=200), "a", "b")
        for both in (scores, scores + shift)
    )
    assert one is not None
    assert other is not None
    assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high), abs=1e-6)


def test_the_family_of_a_baseline_is_its_rows() -> None:
    names = ["kd", "a", "b", "c"]
    scores = {name: 80 + place + RANDOM.normal(0, 0.5, 5) for place, name in enumerate(names)}
    draws = resample(scored({"task": scores}), "task")
    found = against(draws, names, "kd")
    assert [one.row for one in found] == ["a", "b", "c"]
    assert [one.adjusted for one in found] == holm([one.p for one in found])
    pairs = list(product(names, names))
    # Which of the two comes first only turns the sign.
    for first, second in pairs:
        if first != second:
            one, other = compare(draws, first, second), compare(draws, second, first)
            assert (one.value, one.low, one.p) == pytest.approx((-other.value, -other.high, other.p))
