"""ILD-RTC, its comparison with the last layers, and SimKD, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from changed_options import Options
from fixed_traces import Case, case
from plain_numpy import first, hard, linear, mean_square, same, seen, soft, unit

MAPS = {
    ("ild-rtc", 2, 4, False): [(1, 2)],
    ("ild-rtc", 3, 6, False): [(1, 2), (2, 4)],
    ("ild-rtc", 3, 4, True): [(1, 1), (2, 2), (3, 4)],
    ("ild-top", 2, 4, False): [(1, 3)],
    ("ild-top", 3, 6, False): [(1, 4), (2, 5)],
    ("ild-top", 3, 6, True): [(1, 4), (2, 5), (3, 6)],
}


@pytest.mark.parametrize(("map_", "pairs"), MAPS.items(), ids=str)
@pytest.mark.parametrize("width", [12, 8])
def test_layers(map_: tuple[str, int, int, bool], pairs: list[tuple[int, int]], width: int) -> None:
    name, student_layers, teacher_layers, include_last = map_
    at = case(student_layers, teacher_layers, width)
    found, projections, _ = at.terms(name, include_last=include_last)
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    values = []
    for slot, (student, teacher) in enumerate(pairs):
        rows = first(ours.hidden[student])
        if width == 8:
            rows = linear(rows, projections["layers"].student[slot])
        values.append(mean_square(unit(rows), unit(first(theirs.hidden[teacher]))))
    same(
        found,
        {"hard": hard(ours.logits), "soft": soft(ours.logits, theirs.logits, 10), "layers": float(np.mean(values))},
    )


@pytest.mark.parametrize("size", [(2, 4, 12), (3, 6, 8)])
def test_simkd_is_the_last_feature_alone(size: tuple[int, int, int]) -> None:
    at = case(*size)
    found, projections, _ = at.terms("simkd")
    rows = first(seen(at.student["plain"]).hidden[size[0]])
    if size[2] == 8:
        rows = linear(rows, projections["feature"].student[0])
    same(found, {"feature": mean_square(rows, first(seen(at.teacher["plain"]).hidden[size[1]]))})


@pytest.mark.parametrize("size", [(2, 4, 12), (3, 6, 8)])
def test_simkd_on_what_the_linear_classifier_receives(size: tuple[int, int, int]) -> None:
    at = case(*size)
    found, projections, _ = at.terms("simkd", feature="pooled")
    ours, theirs = at.student["plain"].encoder.feature[size[0]], at.teacher["plain"].encoder.feature[size[1]]
    assert not projections
    same(found, {"feature": mean_square(ours.numpy(), theirs.numpy())})


@pytest.mark.parametrize("include_last", [False, True])
def test_golden_19_a_copy_of_the_teacher_has_nothing_to_learn_from_it(include_last: bool) -> None:
    at = case(4, 4)
    copy = Case(student=at.teacher, teacher=at.teacher, mixed=at.mixed)
    found, _, _ = copy.terms("ild-rtc", include_last=include_last)
    assert found["layers"].item() == 0
    assert found["soft"].item() == pytest.approx(0, abs=1e-6)


def test_options() -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard", "weight soft"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "square": (False, {"soft"}),
        "layer_weight": (10.0, {"weight layers"}),
        "include_last": (True, {"layers"}),
    }
    Options("ild-rtc", case(3, 6), rows).check()
    del rows["square"]
    Options("ild-top", case(3, 6), rows).check()
    rows = {"layer_weight": (10.0, {"weight feature"}), "feature": ("pooled", {"feature"})}
    Options("simkd", case(3, 6), rows).check()
