"""DistilBERT against numpy: 1 - cos of the last layer's states, mean over real tokens."""

from __future__ import annotations

import pytest
from changed_options import Options
from fixed_traces import case
from plain_numpy import hard, linear, same, seen, soft, unit, words


@pytest.mark.parametrize("size", [(2, 4, 12), (2, 4, 8), (3, 6, 8)])
def test_distilbert(size: tuple[int, int, int]) -> None:
    at = case(*size)
    found, projections, _ = at.terms("distilbert")
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    student, teacher = words(ours.hidden[size[0]]), words(theirs.hidden[size[1]])
    if size[2] == 8:
        student = linear(student, projections["cosine"].student[0])
    assert bool(projections) == (size[2] == 8)
    same(
        found,
        {
            "hard": hard(ours.logits),
            "soft": soft(ours.logits, theirs.logits, 2),
            "cosine": float((1 - (unit(student) * unit(teacher)).sum(-1)).mean()),
        },
    )


def test_options() -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "layer_weight": (10.0, {"weight cosine"}),
    }
    Options("distilbert", case(), rows).check()
