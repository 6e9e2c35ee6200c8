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


def angle_rows(student: np.ndarray, teacher: np.ndarray, reach: int | None = None) -> list[float]:
    """At each row the mean squared difference of the angles to every two others, within reach."""
    rows = []
    for j in range(len(student)):
        near = [i for i in range(len(student)) if i != j and (reach is None or abs(i - j) <= reach)]
        sides = []
        for vectors in (student, teacher):
            directions = unit(vectors[near] - vectors[j]) if near else np.zeros((0, 1))
            sides.append(directions @ directions.T)
        rows.append(float(((sides[0] - sides[1]) ** 2).mean()) if near else 0.0)
    return rows


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
    word_angles = [
        np.mean([value for e in range(3) for value in angle_rows(ours.hidden[i][e], theirs.hidden[j][e], 10)])
        for i, j in pairs
    ]
    layers, layer_angles = [], []
    for example, length in enumerate(ours.lengths):
        for token in range(length):
            student = np.stack([ours.hidden[i][example][token] for i, _ in pairs])
            teacher = np.stack([theirs.hidden[j][example][token] for _, j in pairs])
            layers += kl_rows(student, teacher)
            layer_angles += angle_rows(student, teacher)
    assert not projections
    same(
        found,
        {
            "soft": soft(ours.logits, theirs.logits, 2),
            "word_relations": float(np.mean(words)),
            "layer_relations": float(np.mean(layers)),
            "word_angles": float(np.mean(word_angles)),
            "layer_angles": float(np.mean(layer_angles)),
        },
    )


def test_options() -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard", "hard"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "word_weight": (2.0, {"weight word_relations", "weight word_angles"}),
        "layer_weight": (2.0, {"weight layer_relations", "weight layer_angles"}),
        "angle_weight": (2.0, {"weight word_angles", "weight layer_angles"}),
    }
    Options("ckd-context", case(), rows).check()


def test_words_farther_than_the_window_do_not_meet() -> None:
    """Of a text of 30 words only those within 10 of each other make angles; numpy agrees."""
    import torch

    from stillery.models.wanted_outputs import Stack
    from stillery.parts import distance, represent_relations

    made = torch.Generator().manual_seed(0)
    sides = [torch.randn(1, 30, 4, generator=made, dtype=torch.float64) for _ in range(2)]
    views = [
        represent_relations.word_angles.extract(
            Stack(hidden={1: side}, mask=torch.ones(1, 30, dtype=torch.long), heads=1, depth=1), 1
        )
        for side in sides
    ]
    found = distance.mse(views[0].values, views[1].values, views[0].mask, "rowmean", views[0].key_mask)
    expected = np.mean(angle_rows(sides[0][0].numpy(), sides[1][0].numpy(), 10))
    np.testing.assert_allclose(found.item(), expected, rtol=1e-9)
