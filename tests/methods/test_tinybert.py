"""TinyBERT against numpy: attention scores, hidden states and embedding, squared error, summed over the layers."""

from __future__ import annotations

import numpy as np
import pytest
from changed_options import Options
from fixed_traces import case
from plain_numpy import attention, hard, linear, mean_square, relation, same, score_square, seen, soft, words

from stillery.recipe import Clock

MAPS = {(2, 4): [2, 4], (3, 6): [2, 4, 6], (2, 6): [3, 6]}


@pytest.mark.parametrize(("size", "teachers"), MAPS.items(), ids=str)
@pytest.mark.parametrize(("width", "always"), [(12, True), (12, False), (8, True), (8, False)])
def test_layers(size: tuple[int, int], teachers: list[int], width: int, always: bool) -> None:
    at = case(*size, width)
    found, projections, _ = at.terms("tinybert", always_project=always)
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    scores = sum(score_square(attention(ours, i), attention(theirs, j)) for i, j in enumerate(teachers, start=1))
    hidden = 0.0
    for i, j in enumerate([0, *teachers]):
        states = words(ours.hidden[i])
        if always or width == 8:
            states = linear(states, projections["hidden"].student[0])
        hidden += mean_square(states, words(theirs.hidden[j]))
    assert len(list(projections["hidden"].parameters()) if projections else []) == (2 if always or width == 8 else 0)
    same(found, {"attention": scores, "hidden": hidden})


def test_the_released_form_counts_padding() -> None:
    at = case(2, 4)
    found, projections, _ = at.terms("tinybert", released=True)
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    scores = 0.0
    for i, j in ((1, 2), (2, 4)):
        squares = np.zeros((3, 4, 7, 7))
        for example, length in enumerate(ours.lengths):
            left = relation(ours.padded_query[i][example], ours.padded_key[i][example], 4)
            right = relation(theirs.padded_query[j][example], theirs.padded_key[j][example], 4)
            # Scores with the mask added that are at most -100 are set to 0 on both sides; padded queries stay.
            added = np.where(np.arange(7) < length, 0.0, -10000.0)
            left, right = (np.where(side + added <= -100, 0.0, side) for side in (left, right))
            squares[example] = (left - right) ** 2
        scores += squares.mean()
    w_h = projections["hidden"].student[0]
    hidden = sum(mean_square(linear(ours.padded[i], w_h), theirs.padded[j]) for i, j in ((0, 0), (1, 2), (2, 4)))
    same(found, {"attention": float(scores), "hidden": hidden})


@pytest.mark.parametrize("hard_weight", [0.0, 0.3])
def test_prediction(hard_weight: float) -> None:
    at = case()
    found, _, _ = at.terms("tinybert", Clock(stage=1), hard_weight=hard_weight)
    ours, theirs = seen(at.student["plain"]).logits, seen(at.teacher["plain"]).logits
    same(found, {"soft": soft(ours, theirs, 1)} | ({"hard": hard(ours)} if hard_weight else {}))


def test_options() -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard", "hard"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "layer_share": (2.0, {"shares"}),
        "least_steps": (50, {"least steps"}),
        "attention_weight": (2.0, {"weight attention"}),
        "hidden_weight": (2.0, {"weight hidden"}),
        "always_project": (False, {"hidden"}),
        "released": (True, {"attention", "hidden"}),
        "normalise": ("token", {"hidden"}),
    }
    Options("tinybert", case(), rows).check()
