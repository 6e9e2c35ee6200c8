"""PKD against numpy: L_PT = mean over batch, layers and width of (s / |s| - t / |t|)^2 of the first tokens."""

from __future__ import annotations

import numpy as np
import pytest
from changed_options import Options
from fixed_traces import case
from plain_numpy import first, hard, linear, mean_square, same, seen, soft, unit

MAPS = {("skip", 2, 4): [2], ("skip", 3, 6): [2, 4], ("last", 2, 4): [3], ("last", 3, 6): [4, 5]}


@pytest.mark.parametrize(("map_", "teachers"), MAPS.items(), ids=str)
@pytest.mark.parametrize("width", [12, 8])
@pytest.mark.parametrize("normalise", [True, False])
def test_pkd(map_: tuple[str, int, int], teachers: list[int], width: int, normalise: bool) -> None:
    layers, student_layers, teacher_layers = map_
    at = case(student_layers, teacher_layers, width)
    found, projections, _ = at.terms("pkd", layers=layers, normalise=normalise)
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    values = []
    for slot, teacher in enumerate(teachers):
        student = first(ours.hidden[slot + 1])
        if width == 8:
            student = linear(student, projections["patience"].student[slot])
        target = first(theirs.hidden[teacher])
        values.append(mean_square(unit(student), unit(target)) if normalise else mean_square(student, target))
    assert bool(projections) == (width == 8)
    same(
        found,
        {"hard": hard(ours.logits), "soft": soft(ours.logits, theirs.logits, 10), "patience": float(np.mean(values))},
    )


def test_options() -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "layers": ("last", {"patience"}),
        "hard_weight": (0.2, {"weight hard", "weight soft"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "square": (False, {"soft"}),
        "layer_weight": (10.0, {"weight patience"}),
        "normalise": (False, {"patience"}),
    }
    Options("pkd", case(3, 6), rows).check()
