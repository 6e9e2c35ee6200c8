"""On real MiniLM layers every teacher-matching term falls when trained alone, and the total jointly."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from real_teacher import RealTeacher
from transformers import PreTrainedModel

from stillery import methods
from stillery.models.student import StudentShape, build, student_sizes
from stillery.recipe import Clock, Stage
from stillery.train.microbatches import MicroBatch
from stillery.train.objective import Losses, Objective

WHOLE = {"examples": 1.0, "tokens": 1.0, "pairs": 1.0, "mixed tokens": 1.0, "mixed pairs": 1.0}
TEACHING = [name for name in methods.names() if methods.build(name).stages[0].needs_teacher]
# The second half of a stage, so that what ramps up counts.
CLOCK = Clock(stage_step=60, stage_steps=100, epoch=1, stage_epochs=2)


@pytest.fixture(scope="module")
def students(minilm: RealTeacher) -> dict[str, PreTrainedModel]:
    """Three layers: narrow and new, with all projections; or of the teacher's width, from its first layers."""

    def make(width: int | None, heads: int | None, init: str) -> PreTrainedModel:
        shape = StudentShape(layers=3, width=width, heads=heads)
        wanted = student_sizes(shape, minilm.loaded.model.config, "minilm-l6")
        model = build(teacher=minilm.loaded, source=minilm.loaded, wanted=wanted, init=init, seed=3).model
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        return model

    return {"narrow": make(96, 12, "random"), "wide": make(None, None, "first")}


def objective_of(student: PreTrainedModel, stages: tuple[Stage, ...], minilm: RealTeacher) -> Objective:
    return Objective(
        copy.deepcopy(student), stages, teacher=minilm.sizes, seed=0,
        examples=int(minilm.batch.index.max()) + 1,
    )  # fmt: skip


def losses_of(objective: Objective, minilm: RealTeacher, clock: Clock) -> Losses:
    mixed = minilm.mixed if objective.stages[clock.stage].mixing else None
    torch.manual_seed(5)
    places = torch.as_tensor(minilm.batch.index)
    micro_batch = MicroBatch(batch=minilm.batch, share=WHOLE, mixed=mixed, places=places)
    return objective(objective.plan(clock), micro_batch, minilm.shown)


def trained(objective: Objective, minilm: RealTeacher, clock: Clock, steps: int, rate: float) -> tuple[Losses, Losses]:
    """The losses before and after a few steps."""
    words = objective.student.get_input_embeddings().weight
    # The large table of words is left alone: it would take most of the time.
    weights = [w for w in objective.parameters() if w.requires_grad and w is not words]
    words.requires_grad_(False)
    optimiser = torch.optim.AdamW(weights, lr=rate, foreach=True)
    first = losses_of(objective, minilm, clock)
    now = first
    for _ in range(steps):
        optimiser.zero_grad()
        now.total.backward()
        optimiser.step()
        now = losses_of(objective, minilm, clock)
    return first, now


ALONE = [
    (name, index, match.name)
    for name in TEACHING
    for index, stage in enumerate(methods.build(name).stages)
    for match in stage.matches
    if match.against == "teacher"
] + [(name, len(methods.build(name).stages) - 1, "soft") for name in ("kd", "tinybert", "cr-ild")]


@pytest.mark.parametrize(("name", "index", "term"), ALONE)
def test_a_term_falls_when_trained_alone(
    name: str, index: int, term: str, minilm: RealTeacher, students: dict[str, PreTrainedModel]
) -> None:
    stages = list(methods.build(name).stages)
    prediction = stages[index].prediction if term == "soft" else None
    matches = tuple(replace(match, weight=1.0) for match in stages[index].matches if match.name == term)
    stages[index] = replace(stages[index], matches=matches, hard_weight=0.0, prediction=prediction)
    objective = objective_of(students["narrow"], tuple(stages), minilm)
    first, last = trained(objective, minilm, replace(CLOCK, stage=index), steps=8, rate=1e-3)
    assert set(first.terms) == {term}
    assert first.terms[term] > 1e-6 and last.terms[term] < 0.98 * first.terms[term]


@pytest.mark.parametrize("name", TEACHING)
def test_the_total_falls_and_every_projection_moves(
    name: str, minilm: RealTeacher, students: dict[str, PreTrainedModel]
) -> None:
    recipe = methods.build(name)
    wide = objective_of(students["wide"], recipe.stages, minilm)
    first, last = trained(wide, minilm, CLOCK, steps=4, rate=5e-4)
    assert last.total < first.total
    narrow = objective_of(students["narrow"], recipe.stages, minilm)
    beside = {key: weights for key, weights in narrow.named_parameters() if not key.startswith("student.")}
    before = {key: weights.detach().clone() for key, weights in beside.items()}
    for index in range(len(recipe.stages)):
        first, last = trained(narrow, minilm, replace(CLOCK, stage=index), steps=4, rate=5e-4)
        assert last.total < first.total, index
    for key, weights in beside.items():
        assert torch.equal(weights, before[key]) == (not weights.requires_grad), key
