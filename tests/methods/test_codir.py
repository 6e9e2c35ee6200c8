"""CoDIR against numpy: InfoNCE between pooled layers side by side, against kept teacher rows of other labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from changed_options import Options
from fixed_traces import case
from plain_numpy import hard, linear, pooled, same, seen, soft, unit

from stillery import methods
from stillery.recipe import Clock

LABELS = [0.0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("size", [(2, 4, 12), (2, 4, 8), (3, 6, 8)])
@pytest.mark.parametrize("options", [{}, {"negatives": 7, "contrast_temperature": 0.5, "width": 5}])
def test_codir(size: tuple[int, int, int], options: dict[str, object]) -> None:
    at, clock = case(*size), Clock(seed=2)
    judges = at.judges(methods.build("codir", options).stages[0], clock)
    bank = judges["contrast"]
    bank.labels.copy_(torch.tensor(LABELS))
    kept = bank.rows.numpy().copy()
    torch.manual_seed(9)
    found = methods.terms("codir", at.student, at.teacher, at.batch, clock, judges=judges, **options)
    torch.manual_seed(9)
    drawn = torch.randint(6, (3, int(options.get("negatives", 100)))).numpy()  # type: ignore[call-overload]
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    student = np.concatenate([pooled(ours.hidden[i]) for i in range(1, size[0] + 1)], axis=1)
    teacher = np.concatenate([pooled(theirs.hidden[j]) for j in range(1, size[1] + 1)], axis=1)
    student, teacher = unit(linear(student, bank.student)), unit(linear(teacher, bank.teacher))
    tau, values = float(options.get("contrast_temperature", 0.07)), []  # type: ignore[arg-type]
    for example, (label, place) in enumerate(zip((2, 0, 1), (4, 0, 2), strict=True)):
        own = student[example] @ teacher[example]
        others = [student[example] @ kept[k] for k in drawn[example] if LABELS[k] != label and k != place]
        assert 0 < len(others) < drawn.shape[1]
        scores = np.array([own, *others]) / tau
        values.append(np.log(np.exp(scores).sum()) - scores[0])
    same(
        found,
        {"hard": hard(ours.logits), "soft": soft(ours.logits, theirs.logits, 2), "contrast": float(np.mean(values))},
    )
    # What was seen is kept under the examples' places, after the step.
    assert np.array_equal(bank.rows.numpy(), kept)
    bank.update(new_epoch=False)
    np.testing.assert_allclose(bank.rows.numpy()[[4, 0, 2]], teacher, rtol=1e-9)
    assert np.array_equal(bank.rows.numpy()[[1, 3, 5]], kept[[1, 3, 5]])
    assert bank.labels[[4, 0, 2]].tolist() == [2, 0, 1]


def test_options() -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "layer_weight": (2.0, {"weight contrast"}),
        "negatives": (10, {"contrast"}),
        "contrast_temperature": (0.5, {"contrast"}),
        "width": (16, {"contrast"}),
    }
    Options("codir", case(), rows).check()
