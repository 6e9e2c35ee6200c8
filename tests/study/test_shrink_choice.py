"""Which students a search trains and recommends, and what it says, on made-up results."""

from __future__ import annotations

import pytest

from stillery.study.shrink.choice import Sized, contenders, finalists, recommended, to_train
from stillery.study.shrink.measure import HELD_OUT, Basis
from stillery.study.shrink.report import Final, reading

TARGET = 80.0


def student(name: str, parameters: int, shape: tuple[int, int] | None = None) -> Sized:
    return Sized(name=name, shape=shape or (parameters, 64), parameters=parameters, latency_ms=float(parameters))


STUDENTS = [student("c", 3), student("a", 1), student("d", 4), student("b", 2)]


def names(students: list[Sized]) -> str:
    return "".join(one.name for one in students)


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ({"a": 70.0, "b": 81.0, "c": 85.0, "d": 86.0}, "b"),
        # Not only from the first gap on: the smallest that is good enough, whatever larger ones do.
        ({"a": 80.0, "b": 60.0, "c": 85.0}, "a"),
        ({"a": 70.0, "b": 79.9, "c": 79.95, "d": 79.9}, "c"),
        ({"a": 70.0, "b": 75.0, "c": 75.0}, "b"),
        ({"a": None, "b": None, "c": 81.0}, "c"),
        # A target and a score that are the same number, once written with four decimals.
        ({"a": 79.99995}, "a"),
    ],
)
def test_the_smallest_that_reaches_the_target_else_the_closest(scores, chosen):
    found = recommended(STUDENTS, scores, TARGET)
    assert found is not None and found.name == chosen


def test_without_a_target_the_best_is_taken_and_the_smaller_of_equals():
    found = recommended(STUDENTS, {"a": 70.0, "b": 90.0, "c": 90.0, "d": None}, None)
    assert found is not None and found.name == "b"
    assert recommended(STUDENTS, {"a": None}, None) is None
    assert recommended(STUDENTS, {}, TARGET) is None


def test_training_goes_from_the_smallest_up_and_stops_at_the_first_that_is_good_enough():
    assert names(to_train(STUDENTS, {}, TARGET)) == "abcd"
    assert names(to_train(STUDENTS, {"a": 79.0}, TARGET)) == "abcd"
    assert names(to_train(STUDENTS, {"a": 79.0, "b": 80.0, "c": 90.0}, TARGET)) == "ab"
    # One that is ready before a smaller one does not end the search.
    assert names(to_train(STUDENTS, {"b": 85.0}, TARGET)) == "ab"
    assert names(to_train(STUDENTS, {"a": None, "b": 79.0}, TARGET)) == "abcd"


def test_after_a_short_round_the_best_start_of_each_shape_and_no_shape_that_a_smaller_one_beats():
    first, even = student("first", 5, (2, 64)), student("even", 5, (2, 64))
    students = [*STUDENTS, first, even]
    short = {"a": 50.0, "b": 49.0, "c": 60.0, "d": None, "first": 61.0, "even": 62.0}
    assert [one.name for one in contenders(students, short)] == ["a", "c", "even"]
    assert [one.name for one in contenders([first, even], {"first": 61.0, "even": 61.0})] == ["first"]
    assert contenders(students, {}) == []


def test_where_the_best_is_sought_a_third_goes_on_and_two_at_least():
    short = {"a": 50.0, "b": 70.0, "c": 60.0, "d": None}
    assert names(finalists(STUDENTS, short)) == "bc"
    many = [student(str(number), number) for number in range(1, 10)]
    assert names(finalists(many, {one.name: float(one.parameters) for one in many})) == "789"


BASIS = Basis(
    task="reviews", metric="accuracy", chooses=HELD_OUT, examples=812, score=89.9, reports="test", steps=100
)  # fmt: skip


def row(name: str, score: float, *, within: bool | None, recommended: bool = False, parameters: int = 1) -> dict:
    return {"student": name, "parameters": parameters, "of_teacher": 0.5, "speedup": 2.0, "score": score,
            "state": "trained", "within": within, "recommended": recommended}  # fmt: skip


def final(value: float, low: float, high: float) -> Final:
    return Final(split="test", examples=853, metric="accuracy", score=88.7, interval=(87.1, 90.2), teacher=89.5,
                 difference=value, between=(low, high))  # fmt: skip


def said(within: float | None, scored: Final, *, found: bool = True) -> str:
    rows = [
        row("teacher", 89.9, within=None),
        row("1 layer", 80.0, within=False),
        row("2 layers", 89.1, within=found if within is not None else None, recommended=True, parameters=2),
    ]
    return "\n".join(reading(rows, BASIS, within, scored))


def test_the_reading_claims_no_more_than_the_intervals_carry():
    wide = said(1.0, final(-0.8, -2.0, 0.4))
    assert (
        "held-out accuracy 89.1 against the teacher's 89.9, on 812 examples: within 1 point; 1 student of its" in wide
    )
    assert "test, scored once on 853 examples: 88.7 [87.1, 90.2], the teacher 89.5" in wide
    assert "difference -0.8 [-2.0, +0.4]: the interval reaches beyond 1 point, so it is not shown" in wide
    assert "within 1.5 points here too, by the whole interval" in said(1.5, final(-0.8, -1.4, 0.4))
    assert "not within 0.5 points here, by the whole interval" in said(0.5, final(-2.0, -3.0, -0.6))


def test_the_reading_where_none_is_within_and_where_none_has_to_be():
    none = said(0.5, final(-0.8, -2.0, 0.4), found=False)
    assert "no student is within 0.5 points; this is the closest of 2 students trained in full" in none
    assert "here too" not in none and "reaches beyond" not in none
    best = said(None, final(-0.8, -2.0, 0.4))
    assert "the highest of 2 students trained in full" in best and "within" not in best
