"""CoDIR against numpy: InfoNCE between pooled layers side by side, against kept teacher rows of other labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from changed_options import Options
from fixed_traces import case
from plain_numpy import hard, linear, pooled, same, seen, soft, unit
from scipy import stats

from stillery import methods
from stillery.parts.bank import drawn_rows
from stillery.recipe import Clock


def splitmix(seed: int, step: int, first: int, count: int, *, below: int) -> list[int]:
    """Steele, Lea and Flood (2014), in whole numbers without an end."""
    (start,) = np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)
    drawn = []
    for number in range(first, first + count):
        z = (int(start) + number * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        drawn.append(((z ^ z >> 31) >> 1) % below)
    return drawn


LABELS = [0.0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("size", [(2, 4, 12), (2, 4, 8), (3, 6, 8)])
@pytest.mark.parametrize("options", [{}, {"negatives": 7, "contrast_temperature": 0.5, "width": 5}])
def test_codir(size: tuple[int, int, int], options: dict[str, object]) -> None:
    at, clock = case(*size), Clock(seed=2)
    judges = at.judges(methods.build("codir", options).stages[0], clock)
    bank = judges["contrast"]
    bank.labels.copy_(torch.tensor(LABELS))
    kept = bank.rows.numpy().copy()
    found = methods.terms("codir", at.student, at.teacher, at.batch, clock, judges=judges, **options)
    negatives = int(options.get("negatives", 100))  # type: ignore[call-overload]
    drawn = np.array([splitmix(2, 0, place * negatives, negatives, below=6) for place in (4, 0, 2)])
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


def test_negatives_are_drawn_evenly_and_anew_for_each_example_and_step() -> None:
    places = torch.randperm(500)
    drawn = drawn_rows(Clock(seed=3, step=7), places, 100, below=25)
    counts = np.bincount(drawn.flatten().numpy(), minlength=25)
    assert len(counts) == 25 and stats.chisquare(counts).pvalue > 1e-4
    # Neighbouring examples, and neighbouring draws of one, know nothing of each other.
    ordered = drawn[places.argsort()].double().numpy()
    for one, other in ((ordered[:-1], ordered[1:]), (ordered[:, :-1], ordered[:, 1:])):
        assert abs(np.corrcoef(one.flatten(), other.flatten())[0, 1]) < 0.02
    for other_clock in (Clock(seed=3, step=8), Clock(seed=4, step=7)):
        other_drawn = drawn_rows(other_clock, places, 100, below=25)
        assert (other_drawn == drawn).double().mean().item() == pytest.approx(1 / 25, abs=0.01)


def test_negatives_of_an_example_do_not_depend_on_who_shares_its_batch() -> None:
    clock, places = Clock(seed=3, step=7), torch.tensor([40, 3, 11, 29])
    whole = drawn_rows(clock, places, 20, below=64)
    assert torch.equal(drawn_rows(clock, places[[2, 0]], 20, below=64), whole[[2, 0]])


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
