"""What CR-ILD's student is run on: consistency is that of its mixed view with the mix of its plain one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel

from stillery import methods
from stillery.data.tokens.batches import Batch
from stillery.losses import Mixed
from stillery.models.family import Sizes
from stillery.models.load_model import Loaded
from stillery.models.trace import trace
from stillery.overrides import Switches, switched
from stillery.recipe import Clock
from stillery.train.microbatches import MicroBatch
from stillery.train.objective import Losses, Objective
from stillery.train.teacher import LiveTeacher

StudentOf = Callable[..., PreTrainedModel]
LATE = Clock(stage_step=8, stage_steps=10)
WHOLE = {"examples": 1.0, "tokens": 1.0, "pairs": 1.0, "mixed tokens": 1.0, "mixed pairs": 1.0}


def objective_of(student: PreTrainedModel, sizes: Sizes, switches: Switches | None = None, **options: object):
    recipe = methods.build("cr-ild", options)
    stages = (switched(recipe, switches, "cr-ild") if switches else recipe).stages
    return Objective(student, stages, teacher=sizes, seed=0)


def losses_of(objective: Objective, teacher: Loaded, batch: Batch, lam: float = 0.3) -> tuple[Losses, Mixed]:
    mixed = Mixed(lam=lam, partner=torch.arange(len(batch)).flip(0))
    live, plan = LiveTeacher(teacher.model), objective.plan(LATE)
    shown = {
        view: live(batch.inputs, plan.teacher.get(view, {}), mixed if view == "mixed" else None)
        for view in ("plain", "mixed")
    }
    micro_batch = MicroBatch(batch=batch, share=WHOLE, mixed=mixed, places=torch.from_numpy(batch.index))
    return objective(plan, micro_batch, shown), mixed


def test_consistency_is_of_the_mixed_view(student_of: StudentOf, teacher, teacher_sizes: Sizes, batch: Batch) -> None:
    student = student_of(2)
    losses, mixed = losses_of(objective_of(student, teacher_sizes), teacher, batch)
    with torch.no_grad():
        plain = trace(student, batch.inputs, [2]).encoder.hidden[2]
        both = trace(student, mixed.inputs(batch.inputs), [2], change=mixed).encoder
        seen, mask = both.hidden[2], both.mask.bool()
        apart = (seen - mixed(plain)).square()[mask].mean().item()
        of_plain = (plain - mixed(plain)).square()[mask].mean().item()
    assert losses.terms["consistency_hidden"].item() == pytest.approx(apart, rel=1e-4)
    assert of_plain > 1.5 * apart, "the two can be told apart"


@pytest.mark.parametrize("lam", [1.0, 0.0])
def test_what_is_not_mixed_is_consistent(
    lam: float, student_of: StudentOf, teacher, teacher_sizes: Sizes, batch: Batch
) -> None:
    losses, _ = losses_of(objective_of(student_of(2), teacher_sizes), teacher, batch, lam)
    for name in ("consistency_attention", "consistency_hidden"):
        assert losses.terms[name].item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("term", ["consistency_attention", "consistency_hidden"])
def test_the_gradient_of_consistency_is_that_of_the_mixed_view_unless_both_are_to_learn(
    term: str, student_of: StudentOf, teacher, teacher_sizes: Sizes, batch: Batch
) -> None:
    """With `stop_gradient=False` the gradient is the sum of both views', of which one alone is known by autograd."""
    gradients = []
    for stop in (True, False):
        student = student_of(2)
        losses, _ = losses_of(objective_of(student, teacher_sizes, stop_gradient=stop), teacher, batch)
        of = student.bert.encoder.layer[0].intermediate.dense.weight
        gradients.append(torch.autograd.grad(losses.terms[term], of)[0])
    assert gradients[0].norm() > 0
    assert (gradients[0] - gradients[1]).norm() > 0.1 * gradients[0].norm()


@pytest.mark.parametrize(
    ("options", "switches", "learning"),
    [
        # A target alone: what led to it need not be kept.
        ({}, None, {"plain": False, "mixed": True}),
        ({"stop_gradient": False}, None, {"plain": True, "mixed": True}),
        ({"hidden_consistency": False}, None, {"plain": False, "mixed": True}),
        # Predictions are learnt on plain examples in the same steps.
        ({}, Switches(schedule="joint"), {"plain": True, "mixed": True}),
        ({"consistency_weight": 0.0}, None, {"mixed": True}),
    ],
)
def test_the_plain_view_has_a_gradient_where_something_learns_from_it_and_else_none(
    options: dict[str, object],
    switches: Switches | None,
    learning: dict[str, bool],
    student_of: StudentOf,
    teacher: Loaded,
    teacher_sizes: Sizes,
    batch: Batch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: dict[str, bool] = {}
    real = Objective._student

    def noted(objective: Objective, *given: object) -> object:
        views = real(objective, *given)
        shown.update({view: next(iter(seen.encoder.query.values())).requires_grad for view, seen in views.items()})
        return views

    monkeypatch.setattr(Objective, "_student", noted)
    objective = objective_of(student_of(2), teacher_sizes, switches, **options)
    losses, _ = losses_of(objective, teacher, batch)
    assert shown == learning
    losses.total.backward()
    classifier = objective.student.classifier.weight.grad
    reached = classifier is not None and bool(classifier.norm() > 0)
    assert reached is (switches is not None), "only predictions reach it"
