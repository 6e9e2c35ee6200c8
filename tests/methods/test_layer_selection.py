"""Layer selection against numpy: squared error of token states, by forward, reverse, random and all-to-one maps."""

from __future__ import annotations

import numpy as np
import pytest
from changed_options import Options
from fixed_traces import case
from plain_numpy import hard, linear, mean_square, same, seen, soft, words

from stillery.recipe import Clock

MAPS = {
    ("layer-forward", 2, 4): [0, 2, 4],
    ("layer-forward", 3, 4): [0, 2, 3, 4],
    ("layer-reverse", 2, 4): [0, 4, 2],
    ("layer-reverse", 3, 6): [0, 6, 4, 2],
    ("layer-all-to-one", 2, 4): [2, 2, 2],
    ("layer-all-to-one", 3, 6): [3, 3, 3, 3],
}


@pytest.mark.parametrize(("map_", "teachers"), MAPS.items(), ids=str)
@pytest.mark.parametrize("width", [12, 8])
@pytest.mark.parametrize("embedding", [True, False])
@pytest.mark.parametrize("released", [False, True])
def test_hidden(map_: tuple[str, int, int], teachers: list[int], width: int, embedding: bool, released: bool) -> None:
    name, student_layers, teacher_layers = map_
    at = case(student_layers, teacher_layers, width)
    found, projections, _ = at.terms(name, embedding=embedding, released=released)
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    values = []
    for slot, (student, teacher) in enumerate(list(enumerate(teachers))[0 if embedding else 1 :]):
        states, target = words(ours.hidden[student]), words(theirs.hidden[teacher])
        if width == 8:
            states = linear(states, projections["hidden"].student[slot])
        mean = mean_square(states, target)
        # The released BERT form: summed over width, mean over real tokens, and divided by the batch size once more.
        values.append(mean * 12 / len(ours.lengths) if released else mean)
    hidden = np.mean(values) if released else np.sum(values)
    assert bool(projections) == (width == 8)
    same(
        found,
        {"hard": hard(ours.logits), "soft": soft(ours.logits, theirs.logits, 1), "hidden": float(hidden)},
    )


@pytest.mark.parametrize("seed", range(6))
def test_random_is_one_of_the_permutations_and_stays(seed: int) -> None:
    at = case(2, 4)
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    possible = [
        sum(mean_square(words(ours.hidden[i]), words(theirs.hidden[j])) for i, j in enumerate(order))
        for order in ([0, 2, 4], [0, 4, 2])
    ]
    values = [at.terms("layer-random", Clock(seed=seed, epoch=epoch))[0]["hidden"].item() for epoch in range(3)]
    assert values[0] == values[1] == values[2]
    assert any(values[0] == pytest.approx(value, rel=1e-5) for value in possible)


def test_random_draws_both_orders() -> None:
    at = case(2, 4)
    assert len({at.terms("layer-random", Clock(seed=seed))[0]["hidden"].item() for seed in range(20)}) == 2


@pytest.mark.parametrize("name", ["layer-forward", "layer-reverse", "layer-all-to-one", "layer-random"])
def test_options(name: str) -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "layer_weight": (10.0, {"weight hidden"}),
        "embedding": (False, {"hidden"}),
        "released": (True, {"hidden"}),
        "normalise": ("token", {"hidden"}),
        # What is traced differs, not what is done with it.
        "raw_last": (True, set()),
    }
    Options(name, case(2, 4), rows).check()
