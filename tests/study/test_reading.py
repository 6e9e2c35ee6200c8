"""The reading under a table claims what its numbers carry, and no more."""

from __future__ import annotations

import re

import numpy as np
import pytest
from making import predicted, scored

from stillery.errors import UserError
from stillery.study.reading import read_task
from stillery.study.reading_overall import read_overall, read_scores
from stillery.study.reading_spread import read_spread, read_spreads
from stillery.study.results import Row
from stillery.study.statistics import Conclusions, conclude

RANDOM = np.random.default_rng(8)
NOISE = RANDOM.normal(0, 0.3, (6, 6))


def read(scores, **options) -> str:
    found = conclude(scored({"task": scores}, rows=options.pop("rows", ())), **options)
    return read_task(found, found.tasks[0])


def rows(seeds: int, **levels: float) -> dict[str, list[float]]:
    """Scores of rows whose means are these levels, with the noise of so many seeds."""
    noise = NOISE[:, :seeds] - NOISE[:, :seeds].mean(axis=1, keepdims=True)
    return {name: list(level + noise[place]) for place, (name, level) in enumerate(levels.items())}


def test_one_seed_carries_nothing_about_methods() -> None:
    said = read(rows(1, kd=70, pkd=90, a=50))
    assert said == (
        "One seed: how far trainings scatter is not known, so pkd and a cannot be said to be better or worse than kd. "
        "No student can be distinguished from the one with the highest mean, pkd. Examples were not resampled: there "
        "are no predictions of kd, seed 0."
    )


def test_two_seeds_are_too_few() -> None:
    said = read(rows(2, kd=70, pkd=90))
    assert said.startswith("Two seeds say too little of how far trainings scatter to call pkd better or worse than kd.")
    assert not re.search(r"Better|Worse", said)


def test_no_method_can_be_told_from_the_baseline() -> None:
    said = read(rows(5, kd=80, pkd=80.05, a=79.9))
    assert (
        "No method can be distinguished from kd on 5 seeds; that does not show that they are alike: the largest" in said
    )
    assert not re.search(r"Better|Worse|is distinguished from all", said)


def test_some_are_better_and_some_are_worse() -> None:
    said = read(rows(6, none=80, up=85, same=80.1, down=70))
    assert re.match(
        r"Better than none: up by \+5\.0 \(\+\d\.\d to \+\d\.\d\)\. "
        r"Worse than none: down by -10\.0 \(-\d+\.\d to -\d+\.\d\)\. Not distinguished from none: same\.",
        said,
    )
    assert "up is distinguished from all others as the best." in said
    # Six seeds are enough for one comparison without assumptions, not for three of them.
    assert "since 6 seeds give no p below 0.0312; with so many methods it would take 7 seeds." in said
    assert "since" not in read(rows(6, none=80, up=85))


def test_overlapping_intervals_are_explained_where_pairs_differ() -> None:
    # Seeds differ a lot, and methods on the same seed always by about one point.
    base = np.array([70.0, 74.0, 78.0, 82.0, 86.0])
    said = read({"kd": base, "pkd": base + 1 + NOISE[0, :5] / 10})
    assert "Better than kd: pkd" in said
    assert "The intervals of pkd and kd overlap; what tells them apart are differences on the same seeds" in said
    assert "overlap" not in read(rows(6, kd=70, pkd=80))


def test_several_are_tied_as_the_best() -> None:
    said = read(rows(6, kd=70, a=80, b=80.05))
    assert re.search(r"The highest mean is that of [ab]; not distinguished from it: [ab]\.", said)


def test_a_teacher_below_its_students_is_named() -> None:
    teacher = Row(name="big", teacher=True, seeds=(0,))
    said = read({"big": [75.0], **rows(4, kd=70, pkd=80)}, rows=[teacher])
    assert "The mean of the teacher big is lower than that of pkd: it may be too weak to teach this task." in said
    assert "than big" not in said


def test_missing_and_failed_runs_are_named_and_not_averaged() -> None:
    said = read({**rows(4, kd=70), "pkd": [80, np.nan, None, 81], "lost": [np.nan] * 4})
    assert said.startswith("Not all runs are there: pkd has 2 of 4 seeds (1 failed); lost has 0 of 4 seeds (4 failed).")
    assert "Two seeds say too little of how far trainings scatter to call pkd" in said
    assert "lost" not in said.split(". ", 1)[1]


def test_a_baseline_without_scores_and_no_scores_at_all() -> None:
    assert "kd has no score, so nothing is compared with it." in read({"kd": [np.nan] * 3, **rows(3, pkd=80)})
    assert read({"kd": [np.nan], "pkd": [np.nan]}).endswith("No student has a score.")
    assert "No other student shares a seed with kd." in read({"kd": [80, None], "pkd": [None, 80]})


def test_a_difference_of_starts_is_not_one_of_methods() -> None:
    given = [Row(name="kd", start="first"), Row(name="pkd", start="last"), Row(name="a", start="first")]
    said = read(rows(4, kd=80, pkd=70, a=80), rows=given)
    assert "pkd and kd differ in their start, so their difference is not one of methods alone." in said


def test_resampled_examples_need_no_caveat() -> None:
    right = {name: RANDOM.random((3, 80)) < 0.8 for name in ("kd", "pkd")}
    found = conclude(predicted(right))
    assert "Only seeds" not in read_task(found, found.tasks[0])


def many(tasks: int, seeds: int = 3, **levels: float) -> Conclusions:
    scores = {
        f"t{task}": {name: 70 + task + level + RANDOM.normal(0, 0.3, seeds) for name, level in levels.items()}
        for task in range(tasks)
    }
    return conclude(scored(scores))


def test_too_few_tasks_are_said_to_be_too_few() -> None:
    said = read_overall(many(3, kd=0, a=5, b=10))
    assert said.startswith(
        "3 tasks cannot tell any methods apart, whatever the scores: the smallest p of a signed-rank test is 0.25, and "
        "3 comparisons would need 0.017; that takes 7 tasks."
    )
    assert "Told apart" not in said


def test_methods_over_enough_tasks() -> None:
    said = read_overall(many(8, kd=0, a=5, b=5))
    assert said.startswith("Told apart over 8 tasks, the better one first: ")
    assert "a from kd (ranks " in said and "b from kd (ranks " in said
    assert " from a " not in said and " from b " not in said
    assert re.match(
        r"Over 8 tasks no method can be distinguished from another \(Friedman", read_overall(many(8, kd=0, a=0, b=0))
    )


def test_what_was_left_out_over_tasks_is_named() -> None:
    scores = {
        "x": {"kd": [70, 71, 72], "pkd": [71, np.nan, 73]},
        "y": {"kd": [70, 71, 72], "pkd": [None] * 3},
        "z": {"kd": [1, 2, 3], "pkd": [1, 2, 3]},
    }
    said = read_overall(conclude(scored(scores)))
    assert said.startswith(
        "Left out, because students share no seed there: y. Only seeds count that every student has: 2 seeds on x."
    )
    assert "nothing is said over tasks" in read_overall(conclude(scored({"x": {"kd": [1, None], "pkd": [None, 1]}})))
    assert "With one task there is nothing to compare" in read_overall(many(1, kd=0, a=1))


def test_the_short_reading_of_all_scores() -> None:
    scores = {f"t{task}": rows(5, none=70, kd=80, pkd=80.05) for task in range(2)}
    scores["t1"]["pkd"][0] = np.nan
    said = read_scores(conclude(scored(scores)))
    assert said == (
        "Of 30 runs, 1 failed; nothing stands in for them. Against none, better: kd on t0 and t1; pkd on t0 and t1. "
        "All other differences from it may be chance. Against kd, worse: none on t0 and t1. All other differences from "
        "it may be chance. P values are adjusted over methods, not over tasks."
    )
    assert "With fewer than three seeds no method is said" in read_scores(many(2, seeds=2, kd=0, a=9))


def spreads(margin: float | None = None, seeds: int = 5, **levels: float) -> str:
    found = conclude(scored({"task": rows(seeds, **levels)}), strategies=list(levels))
    return read_spread(found.spreads[0], level=0.95, margin=margin)


def test_the_spread_of_strategies() -> None:
    said = spreads(forward=80, reverse=75, random=78)
    assert re.search(r"task: 3 strategies lie 5\.0 points apart, forward highest and reverse lowest\.", said)
    assert re.search(r"So it matters here which layers are matched, by 4\.\d to 5\.\d points \(p", said)
    said = spreads(forward=80, reverse=80, random=80)
    assert "So the spread is not distinguished from that of the seeds" in said
    assert re.search(r"That does not show that it is 0: up to \d\.\d points go with these scores\.", said)
    assert not re.search(r"doesn't matter|does not matter|no effect", said)


def test_that_layers_do_not_matter_is_said_only_within_a_margin_that_is_shown() -> None:
    alike = {"forward": 80, "reverse": 80, "random": 80}
    assert spreads(margin=2, **alike).endswith("That the choice of layers is worth 2 points at most is shown.")
    assert spreads(margin=0.1, **alike).endswith("That the choice of layers is worth 0.1 points at most is not shown.")
    assert "at most" not in spreads(margin=50, seeds=2, **alike)


def test_too_few_seeds_for_a_spread() -> None:
    said = spreads(seeds=1, forward=80, reverse=60)
    assert "With one seed in common this may all be noise of the seed; nothing follows of the strategies." in said
    said = spreads(seeds=2, forward=80, reverse=60)
    assert "2 seeds are too few to tell the one from the other." in said
    assert "matters" not in said
    # Three seeds of two strategies give no p below 0.25.
    assert "3 seeds are too few" in spreads(seeds=3, forward=80, reverse=60)
    none = conclude(scored({"task": {"a": [1, None], "b": [None, 1]}}), strategies=["a", "b"])
    assert read_spreads(none) == "No task has scores of two strategies on the same seed."


def test_unknown_rows_are_refused_together() -> None:
    with pytest.raises(UserError) as caught:
        conclude(scored({"task": rows(3, kd=80)}), baselines=["kdd"], strategies=["kd", "forward"])
    assert caught.value.lines == (
        "no student 'kdd' to be a baseline; did you mean 'kd'?",
        "no student 'forward' to be a layer strategy; known: kd",
    )
