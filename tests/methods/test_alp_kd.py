"""ALP-KD against numpy: per example, e_jk = softmax_k(h_Sj . phi(h_Tk)), target sum_k e_jk phi(h_Tk), squared error."""

from __future__ import annotations

import numpy as np
import pytest
from changed_options import Options
from fixed_traces import case
from plain_numpy import first, hard, linear, mean_square, pooled, same, seen, soft, softmax


@pytest.mark.parametrize("size", [(2, 4, 12), (2, 4, 8), (3, 6, 8)])
@pytest.mark.parametrize("states", ["cls", "pool"])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("detach", [False, True])
def test_alp_kd(size: tuple[int, int, int], states: str, scale: bool, detach: bool) -> None:
    at = case(*size)
    found, projections, _ = at.terms("alp-kd", states=states, scale=scale, detach=detach)
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    rows = first if states == "cls" else pooled
    student_layers, teacher_layers, width = size
    values = []
    for j in range(1, student_layers):
        student = rows(ours.hidden[j])
        teachers = [rows(theirs.hidden[k]) for k in range(1, teacher_layers)]
        if width == 8:
            teachers = [linear(teacher, projections["attended_layers"].teacher[0]) for teacher in teachers]
        targets = []
        for example in range(3):
            products = np.array([student[example] @ teacher[example] for teacher in teachers])
            weights = softmax(products / np.sqrt(width) if scale else products)
            targets.append(sum(w * teacher[example] for w, teacher in zip(weights, teachers, strict=True)))
        values.append(mean_square(student, np.stack(targets)))
    assert bool(projections) == (width == 8)
    same(
        found,
        {
            "hard": hard(ours.logits),
            "soft": soft(ours.logits, theirs.logits, 2),
            "attended_layers": float(np.mean(values)),
        },
    )


def test_one_map_takes_all_teacher_states_to_the_students_width() -> None:
    _, projections, _ = case(3, 6, 8).terms("alp-kd")
    (phi,) = projections["attended_layers"].parameters()
    assert phi.shape == (8, 12)


def test_options() -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "layer_weight": (10.0, {"weight attended_layers"}),
        "states": ("pool", {"attended_layers"}),
        "scale": (True, {"attended_layers"}),
        "detach": (True, {"gradient attended_layers"}),
    }
    Options("alp-kd", case(3, 6), rows).check()
