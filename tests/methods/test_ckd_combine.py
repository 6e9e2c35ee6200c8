"""CKD-combine against numpy: a block of teacher layers side by side, mapped to the student's width, squared error."""

from __future__ import annotations

import numpy as np
import pytest
from changed_options import Options, changed
from fixed_traces import case
from plain_numpy import first, hard, linear, mean_square, pooled, same, seen, soft, words

BLOCKS = {
    ("regular", 2, 6): [(1, 2, 3), (4, 5, 6)],
    ("overlap", 2, 6): [(1, 2, 3, 4), (3, 4, 5, 6)],
    ("skip-middle", 2, 6): [(1, 2), (5, 6)],
    ("cross", 2, 6): [(1, 3), (4, 6)],
    ("regular", 2, 4): [(1, 2), (3, 4)],
    ("regular", 3, 4): [(1, 2), (3,), (4,)],
    ("overlap", 3, 6): [(1, 2, 3), (2, 3, 4, 5), (4, 5, 6)],
}


@pytest.mark.parametrize(("cut", "blocks"), BLOCKS.items(), ids=str)
@pytest.mark.parametrize("states", ["cls", "pool", "tokens"])
@pytest.mark.parametrize("width", [12, 8])
def test_ckd_combine(cut: tuple[str, int, int], blocks: list[tuple[int, ...]], states: str, width: int) -> None:
    partition, student_layers, teacher_layers = cut
    at = case(student_layers, teacher_layers, width)
    found, projections, _ = at.terms("ckd-combine", partition=partition, states=states)
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    rows = {"cls": first, "pool": pooled, "tokens": words}[states]
    values = []
    for slot, block in enumerate(blocks):
        joined = np.concatenate([rows(theirs.hidden[layer]) for layer in block], axis=-1)
        combined = linear(joined, projections["combined_layers"].teacher[slot])
        values.append(mean_square(rows(ours.hidden[slot + 1]), combined))
    same(
        found,
        {
            "hard": hard(ours.logits),
            "soft": soft(ours.logits, theirs.logits, 2),
            "combined_layers": float(np.mean(values)),
        },
    )


def test_options() -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "layer_weight": (10.0, {"weight combined_layers"}),
        "partition": ("overlap", {"combined_layers"}),
        "states": ("pool", {"combined_layers"}),
    }
    Options("ckd-combine", case(2, 6, 8), rows).check()
    for partition in ("skip-middle", "cross"):
        assert changed("ckd-combine", case(2, 6, 8), "partition", partition) == {"combined_layers"}
    assert changed("ckd-combine", case(2, 6, 8), "states", "tokens") == {"combined_layers"}
