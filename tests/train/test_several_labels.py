"""Losses where a text may have several labels: against numpy and transformers, however a step is cut."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from scipy.special import expit

from stillery import declare, methods
from stillery.data.tokens.collate import collate
from stillery.errors import ErrorList
from stillery.jobs.chosen_recipe import check_one_class
from stillery.models.trace import trace
from stillery.parts import divergence as divergences
from stillery.parts.divergence import kl, logit_mse, per_label
from stillery.recipe import Clock
from stillery.train.microbatches import MicroBatch
from stillery.train.objective import Objective
from stillery.train.teacher import LiveTeacher

DIVERGENCES = declare.of_module("divergence", divergences.__name__)

NOTHING = {"hidden": set(), "query": set(), "key": set(), "value": set(), "feature": set()}


def bernoulli(name: str, student: np.ndarray, teacher: np.ndarray, temperature: float) -> float:
    """The mean divergence of yes and no, written out; the raw outputs for mse."""
    p, q = (np.stack([expit(x / temperature), expit(-x / temperature)]) for x in (student, teacher))
    middle = (p + q) / 2
    values = {
        "kl": lambda: (q * np.log(q / p)).sum(0),
        "reverse-kl": lambda: (p * np.log(p / q)).sum(0),
        "js": lambda: ((q * np.log(q / middle)).sum(0) + (p * np.log(p / middle)).sum(0)) / 2,
        "tvd": lambda: np.abs(p - q).sum(0) / 2,
        "soft-ce": lambda: -(q * np.log(p)).sum(0),
        "mse": lambda: (student - teacher) ** 2 / temperature**2,
    }[name]()
    return float(values.mean()) * temperature**2


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_every_divergence_of_yes_and_no(name: str, temperature: float) -> None:
    random = np.random.default_rng(0)
    student, teacher = random.normal(size=(5, 4)) * 3, random.normal(size=(5, 4)) * 3
    found = per_label(DIVERGENCES[name], torch.tensor(student), torch.tensor(teacher), temperature)
    assert found.item() == pytest.approx(bernoulli(name, student, teacher, temperature), rel=1e-9)
    same = per_label(DIVERGENCES[name], torch.tensor(teacher), torch.tensor(teacher), temperature).item()
    assert found.item() > same
    assert name == "soft-ce" or same == pytest.approx(0, abs=1e-12)


def test_a_label_does_not_depend_on_the_others() -> None:
    student, teacher = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, 3.0]])
    alone = [per_label(kl, student[:, [i]], teacher[:, [i]]).item() for i in range(2)]
    assert per_label(kl, student, teacher).item() == pytest.approx(np.mean(alone))
    # With one output of a softmax there is nothing to tell apart; of yes and no there is.
    assert kl(student[:, :1], teacher[:, :1]).item() == 0 and alone[0] > 0


@pytest.fixture
def several(sentences):
    """The sentences with two labels that have nothing to do with each other."""
    hot = np.stack([np.arange(64) % 2, np.arange(64) % 3 == 0], axis=1).astype(np.float32)
    return dataclasses.replace(sentences, labels=hot)


def losses(objective, teacher, examples, tokens, index, share=1.0):
    batch = collate(examples, tokens, index, 0)
    shown = {"plain": LiveTeacher(teacher.model)(batch.inputs, NOTHING)}
    shares = dict.fromkeys(("examples", "tokens", "pairs"), share)
    micro_batch = MicroBatch(batch=batch, share=shares, places=torch.from_numpy(batch.index))
    return batch, objective(objective.plan(Clock()), micro_batch, shown)


def test_the_terms_are_those_of_transformers_and_numpy(student_of, teacher, teacher_sizes, several, tokens) -> None:
    stages = methods.build("kd", {"hard_weight": 0.25, "temperature": 2}).stages
    student = student_of(2).eval()
    student.config.problem_type = "multi_label_classification"
    objective = Objective(student, stages, teacher=teacher_sizes, kind="labels", seed=0)
    batch, found = losses(objective, teacher, several, tokens, np.arange(12))
    with torch.no_grad():
        output = student(**batch.inputs, labels=batch.labels)
        theirs = teacher.model.eval()(**batch.inputs).logits
    assert found.terms["hard"].item() == pytest.approx(output.loss.item(), rel=1e-6)
    expected = bernoulli("kl", output.logits.double().numpy(), theirs.double().numpy(), 2.0)
    assert found.terms["soft"].item() == pytest.approx(expected, rel=1e-5)
    assert found.total.item() == pytest.approx(0.25 * output.loss.item() + 0.75 * expected, rel=1e-5)


def test_parts_of_a_step_add_up_to_the_whole(student_of, teacher, teacher_sizes, several, tokens) -> None:
    stages = methods.build("kd").stages
    objective = Objective(student_of(2).eval(), stages, teacher=teacher_sizes, kind="labels", seed=0)
    cuts = [np.arange(0, 3), np.arange(3, 14), np.arange(14, 24)]
    whole = losses(objective, teacher, several, tokens, np.arange(24))[1]
    parts = [losses(objective, teacher, several, tokens, cut, len(cut) / 24)[1] for cut in cuts]
    for name, value in whole.terms.items():
        torch.testing.assert_close(sum(part.terms[name] for part in parts), value, rtol=1e-5, atol=1e-6)


def test_terms_can_be_recomputed_from_traces(student_of, teacher, several, tokens) -> None:
    batch = collate(several, tokens, np.arange(8), 0)
    shown = [trace(model.eval(), batch.inputs, set()) for model in (student_of(2), teacher.model)]
    found = methods.terms("kd", *shown, batch, temperature=1.0)
    with torch.no_grad():
        logits = [one.logits.double().numpy() for one in shown]
    assert found["soft"].item() == pytest.approx(bernoulli("kl", *logits, 1.0), rel=1e-5)


@pytest.mark.parametrize("name", methods.names())
def test_methods_that_need_one_class_are_refused(name: str) -> None:
    errors = ErrorList()
    check_one_class(methods.build(name).stages, name, errors)
    assert bool(errors.lines) == (name in ("codir", "universal-kd"))
    assert all(f"{name} needs one class per text" in line for line in errors.lines)


def test_a_divergence_of_ones_own() -> None:
    def scaled(student, teacher, temperature=1.0, square=True, *, by):
        assert student.shape == (6, 2)
        return by * kl(student, teacher, temperature, square)

    student, teacher = torch.randn(2, 3), torch.randn(2, 3)
    assert per_label(partial(scaled, by=2), student, teacher).item() == pytest.approx(
        2 * per_label(kl, student, teacher).item()
    )
    assert per_label(logit_mse, student, teacher).item() == pytest.approx((student - teacher).square().mean().item())
