"""Universal-KD against numpy: pseudo classifiers fitted on the teacher, then matched by attention over its layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from changed_options import Options
from fixed_traces import case
from plain_numpy import hard, linear, pooled, same, seen, soft, softmax

from stillery import methods
from stillery.recipe import Clock

SIZES = [(2, 4, 12), (2, 4, 8), (3, 6, 8)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_layers(size: tuple[int, int, int], temperature: float) -> None:
    at, clock = case(*size), Clock(stage=1)
    options = {"pseudo_temperature": temperature}
    judges = at.judges(methods.build("universal-kd", options).stages[1], clock)
    found = methods.terms("universal-kd", at.student, at.teacher, at.batch, clock, judges=judges, **options)
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    heads = judges["pseudo"]
    teachers = [linear(pooled(theirs.hidden[k]), heads.teacher[k - 1]) for k in range(1, size[1])]
    values = []
    for j in range(1, size[0]):
        student = linear(pooled(ours.hidden[j]), heads.student[j - 1])
        for example in range(3):
            weights = softmax(np.array([student[example] @ teacher[example] for teacher in teachers]))
            p = sum(w * softmax(t[example] / temperature) for w, t in zip(weights, teachers, strict=True))
            q = softmax(student[example] / temperature)
            values.append((p * np.log(p / q)).sum() * temperature**2)
    same(found, {"pseudo_predictions": float(np.mean(values))})


@pytest.mark.parametrize("size", SIZES)
def test_heads_are_fitted_to_the_labels(size: tuple[int, int, int]) -> None:
    at, clock = case(*size), Clock(stage=0)
    judges = at.judges(methods.build("universal-kd").stages[0], clock)
    found = methods.terms("universal-kd", at.student, at.teacher, at.batch, clock, judges=judges)
    theirs, heads = seen(at.teacher["plain"]), judges["pseudo"]
    values = [hard(linear(pooled(theirs.hidden[k]), heads.teacher[k - 1])) for k in range(1, size[1])]
    same(found, {"teacher_heads": float(np.mean(values))})
    found["teacher_heads"].backward()
    assert all(weights.grad is not None for weights in heads.teacher.parameters())
    assert all(weights.grad is None for weights in heads.student.parameters())


def test_matching_trains_the_students_heads_only() -> None:
    at, clock = case(), Clock(stage=1)
    judges = at.judges(methods.build("universal-kd").stages[1], clock)
    methods.terms("universal-kd", at.student, at.teacher, at.batch, clock, judges=judges)[
        "pseudo_predictions"
    ].backward()
    assert all(weights.grad is None for weights in judges["pseudo"].teacher.parameters())
    assert all(torch.any(weights.grad != 0) for weights in judges["pseudo"].student.parameters())


def test_prediction() -> None:
    at = case()
    ours, theirs = seen(at.student["plain"]).logits, seen(at.teacher["plain"]).logits
    found, _, _ = at.terms("universal-kd", Clock(stage=2))
    same(found, {"hard": hard(ours), "soft": soft(ours, theirs, 2)})


def test_options() -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard", "weight soft"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "layer_weight": (2.0, {"weight pseudo_predictions"}),
        "pseudo_temperature": (3.0, {"pseudo_predictions"}),
        "heads_share": (2.0, {"shares"}),
        "layer_share": (2.0, {"shares"}),
        "least_steps": (50, {"least steps"}),
        "prediction_share": (2.0, {"shares"}),
    }
    Options("universal-kd", case(), rows).check()
