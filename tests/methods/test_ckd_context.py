"""CKD (Park et al.) against numpy: cosines between words and between layers, softmaxed without the diagonal, KL."""

from __future__ import annotations

import numpy as np
import pytest
from changed_options import Options
from fixed_traces import case
from plain_numpy import same, seen, soft, softmax, unit


def off_diagonal(vectors: np.ndarray) -> np.ndarray:
    """The softmax over every other row of the cosines with it, one row per row."""
    cosines = unit(vectors) @ unit(vectors).T
    return np.stack([softmax(np.delete(row, i)) for i, row in enumerate(cosines)])


def kl_rows(student: np.ndarray, teacher: np.ndarray) -> list[float]:
    p, q = off_diagonal(teacher), off_diagonal(student)
    return list((p * np.log(p / q)).sum(-1))


@pytest.mark.parametrize("size", [(2, 4, 12), (2, 4, 8), (3, 6, 8)])
def test_ckd_context(size: tuple[int, int, int]) -> None:
    at = case(*size)
    found, projections, _ = at.terms("ckd-context")
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    pairs = {2: [(0, 0), (1, 2), (2, 4)], 3: [(0, 0), (1, 2), (2, 4), (3, 6)]}[size[0]]
    words = [
        np.mean([value for e in range(3) for value in kl_rows(ours.hidden[i][e], theirs.hidden[j][e])])
        for i, j in pairs
    ]
    layers = []
    for example, length in enumerate(ours.lengths):
        for token in range(length):
            student = np.stack([ours.hidden[i][example][token] for i, _ in pairs])
            teacher = np.stack([theirs.hidden[j][example][token] for _, j in pairs])
            layers += kl_rows(student, teacher)
    assert not projections
    same(
        found,
        {
            "soft": soft(ours.logits, theirs.logits, 2),
            "word_relations": float(np.mean(words)),
            "layer_relations": float(np.mean(layers)),
        },
    )


def test_options() -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard", "hard"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "word_weight": (2.0, {"weight word_relations"}),
        "layer_weight": (2.0, {"weight layer_relations"}),
    }
    Options("ckd-context", case(), rows).check()
