"""KD and no distillation against numpy, and the prediction terms of every method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from changed_options import Options
from fixed_traces import Case, Labels, case
from plain_numpy import hard, same, seen, soft

from stillery import methods
from stillery.recipe import Clock


def test_none_is_the_labels_loss() -> None:
    at = case()
    found, _, _ = at.terms("none")
    same(found, {"hard": hard(seen(at.student["plain"]).logits)})


@pytest.mark.parametrize(("temperature", "square"), [(2.0, True), (1.0, True), (7.0, False)])
def test_kd(temperature: float, square: bool) -> None:
    at = case()
    ours, theirs = seen(at.student["plain"]).logits, seen(at.teacher["plain"]).logits
    found, _, _ = at.terms("kd", temperature=temperature, square=square)
    same(found, {"hard": hard(ours), "soft": soft(ours, theirs, temperature, square)})


def test_options() -> None:
    Options("none", case(), {"hard_weight": (0.5, {"weight hard"})}).check()
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard", "weight soft"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "square": (False, {"soft"}),
    }
    Options("kd", case(), rows).check()


STAGES = [(name, index) for name in methods.names() for index in range(len(methods.build(name).stages))]


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_prediction_terms_of_every_method(name: str, stage: int) -> None:
    at = case()
    ours, theirs = seen(at.student["plain"]).logits, seen(at.teacher["plain"]).logits
    made = methods.build(name).stages[stage]
    found, _, _ = at.terms(name, Clock(stage=stage))
    assert ("hard" in found) == (made.hard_weight > 0)
    assert ("soft" in found) == (made.prediction is not None)
    if "hard" in found:
        assert found["hard"].item() == pytest.approx(hard(ours), rel=1e-5)
    if made.prediction is not None:
        assert found["soft"].item() == pytest.approx(soft(ours, theirs, made.prediction.temperature), rel=1e-5)
    assert set(found) - {"hard", "soft"} == {match.name for match in made.matches}


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_regression_of_every_method(name: str, stage: int) -> None:
    at = case()
    labels = torch.tensor([0.5, 3.0, 4.5])

    def single(views) -> dict:
        return {view: replace(trace, logits=trace.logits[:, :1]) for view, trace in views.items()}

    at = Case(student=single(at.student), teacher=single(at.teacher), mixed=at.mixed, batch=Labels(labels))
    ours, theirs = (seen(side["plain"]).logits[:, 0] for side in (at.student, at.teacher))
    found, _, _ = at.terms(name, Clock(stage=stage))
    if "hard" in found:
        assert found["hard"].item() == pytest.approx(np.mean((ours - labels.numpy()) ** 2), rel=1e-5)
    if "soft" in found:
        assert found["soft"].item() == pytest.approx(np.mean((ours - theirs) ** 2), rel=1e-5)
