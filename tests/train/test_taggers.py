"""Losses of models that tag words: by plain numpy, over labelled positions, however a step is padded and cut."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from tiny_taggers import TAGS, processes, sentences, tagger
from torch import Tensor

from stillery import declare, methods
from stillery.errors import UserError
from stillery.losses import BatchFacts, stage_terms
from stillery.models.family import stack_sizes
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Trace
from stillery.parts import divergence as divergences
from stillery.recipe import Clock, Prediction, Recipe, Stage
from stillery.train.loop import Sources, accelerator_for, train
from stillery.train.microbatches import split_window
from stillery.train.objective import Objective
from stillery.train.recipe_checks import check_stages
from stillery.train.settings import Training
from stillery.train.teacher import LiveTeacher
from stillery.train.trainable import WordData

DIVERGENCES = declare.of_module("divergence", divergences.__name__)

METHODS: dict[str, dict[str, Any]] = {
    "none": {},
    "kd": {},
    **{name: {} for name in ("layer-forward", "layer-reverse", "layer-all-to-one", "layer-random")},
    "pkd": {},
    "alp-kd": {},
    "ckd-combine": {},
    "ckd-context": {},
    "rail-kd": {"width": 8},
    "rail-kd-concat": {"width": 8},
    "l-ild": {"layer_share": 1, "least_steps": 1},
    "u-ild": {"layer_share": 1, "least_steps": 1},
    "emd-ild": {"layer_share": 1, "least_steps": 1},
    "tinybert": {"layer_share": 1, "least_steps": 1},
    "minilm": {"layer_share": 1, "least_steps": 1},
    "minilm-v2": {"layer_share": 1, "least_steps": 1},
    "bert-emd": {},
    "distilbert": {},
}
"""Methods whose step is a sum over its rows, however it is cut."""


def soft(name: str, student: np.ndarray, teacher: np.ndarray, temperature: float) -> float:
    """A divergence of rows of logits, written out; the mean over rows, times the square of the temperature."""
    ours, theirs = (log_softmax(side / temperature, -1) for side in (student, teacher))
    p, q = np.exp(ours), np.exp(theirs)
    middle = np.log((p + q) / 2)
    rows = {
        "kl": lambda: (q * (theirs - ours)).sum(-1),
        "reverse-kl": lambda: (p * (ours - theirs)).sum(-1),
        "js": lambda: ((q * (theirs - middle)).sum(-1) + (p * (ours - middle)).sum(-1)) / 2,
        "tvd": lambda: np.abs(p - q).sum(-1) / 2,
        "soft-ce": lambda: -(q * ours).sum(-1),
        "mse": lambda: ((student - teacher) ** 2).mean(-1) / temperature**2,
    }[name]()
    return float(rows.mean()) * temperature**2


def labelled(model: Any, data: WordData) -> tuple[np.ndarray, np.ndarray]:
    """The logits [labelled words, tags] that transformers gives, one sentence at a time, and the tags."""
    logits, tags = [], []
    for row in range(len(data)):
        first, behind = data.words.tokens.offsets[row : row + 2]
        ids = torch.from_numpy(data.words.tokens.flat[first:behind].astype(np.int64))[None]
        labels = data.labels[first:behind]
        with torch.no_grad():
            logits.append(model(input_ids=ids).logits[0].double().numpy()[labels != -100])
        tags.append(labels[labels != -100])
    return np.concatenate(logits), np.concatenate(tags)


class Lesson:
    """A recipe on a student and a teacher, and its losses on sentences."""

    def __init__(self, recipe: Recipe, student: Any, teacher: Any) -> None:
        self.recipe, self.teacher = recipe, LiveTeacher(teacher)
        self.objective = Objective(student, recipe.stages, teacher=stack_sizes(teacher.config), kind="tags", seed=0)

    def losses(self, part: Any, clock: Clock) -> Any:
        plan = self.objective.plan(clock)
        shown = {"plain": self.teacher(part.batch.inputs, plan.teacher.get("plain", {}))}
        return self.objective(plan, part, shown)


def one_stage(divergence: str, temperature: float = 1.0, hard: float = 0.3) -> Recipe:
    prediction = Prediction(divergence=DIVERGENCES[divergence], temperature=temperature, weight=1 - hard)
    return Recipe(stages=(Stage(hard_weight=hard, prediction=prediction),))


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_golden_numbers_of_predictions(name: str, temperature: float) -> None:
    """Every labelled word counts once, whatever the length of its sentence; nothing else counts."""
    student, teacher, data = tagger(layers=2, seed=1), tagger(layers=3, seed=2), sentences(12)
    (part,) = split_window(data, np.arange(12), 12, Clock(), None, processes())
    found = Lesson(one_stage(name, temperature), student, teacher).losses(part, Clock())
    (ours, tags), (theirs, _) = labelled(student, data), labelled(teacher, data)
    hard = -log_softmax(ours, -1)[np.arange(len(tags)), tags].mean()
    expected = soft(name, ours, theirs, temperature)
    assert len(tags) == (data.words.first >= 0).sum() < data.words.words
    assert found.terms["hard"].item() == pytest.approx(hard, rel=1e-5)
    assert found.terms["soft"].item() == pytest.approx(expected, rel=1e-4)
    assert found.total.item() == pytest.approx(0.3 * hard + 0.7 * expected, rel=1e-5)


def test_the_labels_loss_is_that_of_transformers() -> None:
    student, data = tagger(seed=1), sentences(12)
    batch = data.batch(np.arange(12))
    found = stage_terms(Stage(), [], {"plain": trace(student, batch.inputs)}, {}, BatchFacts(kind="tags"), Clock())
    assert found["hard"].item() == pytest.approx(student(**batch.inputs).loss.item(), rel=1e-6)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_what_is_not_labelled_never_matters(name: str) -> None:
    """Neither its logits, not a number even, nor how far a batch is padded."""
    data, stage = sentences(6), one_stage(name, 2.0).stages[0]
    random, terms = torch.Generator().manual_seed(0), []
    batch = data.batch(np.arange(6), 1)
    ours, theirs = (torch.randn(*batch.inputs["labels"].shape, TAGS, generator=random) for _ in range(2))
    for waste, more in ((0.0, 0), (float("nan"), 0), (7.0, 5)):
        labels = torch.nn.functional.pad(batch.inputs["labels"], (0, more), value=-100)

        def padded(logits: Tensor, labels: Tensor = labels, waste: float = waste, more: int = more) -> Trace:
            wide = torch.nn.functional.pad(logits, (0, 0, 0, more))
            made = torch.where(labels[..., None] == -100, waste, wide).requires_grad_()
            return Trace(logits=made, targets=labels)

        student, teacher = padded(ours), padded(theirs)
        found = stage_terms(stage, [], {"plain": student}, {"plain": teacher}, BatchFacts(kind="tags"), Clock())
        sum(found.values()).backward()
        slope = student.logits.grad
        assert not slope[labels == -100].any() and slope[labels != -100].all()
        terms.append({key: value.item() for key, value in found.items()})
    assert terms[0] == terms[1] == terms[2]


def test_rows_are_counted_before_a_batch_is_made() -> None:
    data = sentences(9)
    for index in (np.arange(9), np.array([3]), np.array([], dtype=np.int64)):
        rows, lengths = data.rows(index), data.lengths[index]
        made = data.batch(index)
        assert rows["targets"] == int((made.inputs["labels"] != -100).sum()) == data.target_lengths[index].sum()
        assert rows["tokens"] == int(made.inputs["attention_mask"].sum()) == lengths.sum()
        assert rows["pairs"] == (lengths**2).sum() and rows["examples"] == len(index)


def total(
    lesson: Lesson, data: WordData, batch_size: int, clock: Clock, of: int = 1
) -> tuple[dict[str, float], Tensor]:
    """The terms and the gradient of a whole step, added up over its micro-batches and processes."""
    lesson.objective.zero_grad()
    terms: dict[str, float] = {}
    mixing = lesson.recipe.stages[clock.stage].mixing
    for process in range(of):
        for part in split_window(data, np.arange(len(data)), batch_size, clock, mixing, processes(process, of)):
            found = lesson.losses(part, clock)
            found.total.backward()
            for name, value in found.terms.items():
                terms[name] = terms.get(name, 0.0) + value.item()
    slopes = [one.grad.flatten() for one in lesson.objective.parameters() if one.grad is not None]
    return terms, torch.cat(slopes)


@pytest.mark.parametrize("name", METHODS)
def test_four_of_eight_are_one_of_thirty_two(name: str) -> None:
    """Terms and gradients, over micro-batches and over processes, to 1e-6."""
    recipe = methods.build(name, METHODS[name])
    student, teacher = tagger(layers=2, width=8, seed=1), tagger(layers=4, seed=2)
    lesson, data = Lesson(recipe, student, teacher), sentences(32)
    for stage in range(len(recipe.stages)):
        clock = Clock(stage=stage, stage_step=1, stage_steps=4, step=1)
        whole, slopes = total(lesson, data, 32, clock)
        for batch_size, of in ((8, 1), (8, 2), (5, 3)):
            terms, theirs = total(lesson, data, batch_size, clock, of)
            if name == "bert-emd" or "emd" in name:
                # A transport is found for a batch, and so is another for each part of it.
                terms, whole = ({key: one[key] for key in ("hard", "soft") if key in one} for one in (terms, whole))
            else:
                torch.testing.assert_close(theirs, slopes, rtol=1e-5, atol=1e-6)
            assert terms == pytest.approx(whole, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", [*METHODS, "cr-ild", "simkd"])
def test_every_method_trains(name: str, tmp_path: Path) -> None:
    """Its checks pass, and its losses fall."""
    recipe = methods.build(name, METHODS.get(name, {"layer_share": 1, "least_steps": 1} if name == "cr-ild" else {}))
    student, teacher = tagger(layers=2, width=8, seed=1), tagger(layers=4, seed=2)
    configs = student.config, teacher.config
    check_stages(recipe.stages, *map(stack_sizes, configs), Clock(), configs)
    lesson, data = Lesson(recipe, student, teacher), sentences(8)
    settings = Training(epochs=6, batch_size=8, lr=1e-2, log_every=1, warmup=0.0, guards=False)
    sources = Sources(data=data, teacher=lesson.teacher)
    train(lesson.objective, sources, settings, accelerator=accelerator_for("fp32"), folder=tmp_path)
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    for stage in recipe.stages:
        first, *_, last = (event["terms"] for event in logged if event["stage"] == stage.name)
        known = [term for term in first if "consistency" not in term]
        assert known and sum(last[term] for term in known) < sum(first[term] for term in known)


def test_without_tags_a_teacher_is_followed_at_first_pieces() -> None:
    """The labels say where words begin, and no tag; what is learnt there is the teacher's prediction alone."""
    student, teacher = tagger(layers=2, seed=1), tagger(layers=3, seed=2)
    bare, tagged = sentences(8, tagged=False), sentences(8)
    assert set(bare.labels) == {-1, -100}
    recipe = Recipe(stages=(dataclasses.replace(one_stage("kl").stages[0], hard_weight=0.0),))
    lesson, terms = Lesson(recipe, student, teacher), []
    for data in (bare, tagged):
        (part,) = split_window(data, np.arange(8), 8, Clock(), None, processes())
        terms.append(lesson.losses(part, Clock()).terms["soft"].item())
    assert terms[0] == terms[1] > 0


def test_terms_can_be_recomputed_from_traces() -> None:
    student, teacher, data = tagger(layers=2, seed=1), tagger(layers=3, seed=2), sentences(8)
    batch = data.batch(np.arange(8))
    shown = [trace(model, batch.inputs, range(model.config.num_hidden_layers + 1)) for model in (student, teacher)]
    found = methods.terms("kd", *shown, batch, temperature=2.0)
    ours, theirs = (labelled(model, data)[0] for model in (student, teacher))
    assert found["soft"].item() == pytest.approx(soft("kl", ours, theirs, 2.0), rel=1e-5)


def test_a_trace_without_labels_cannot_be_scored() -> None:
    inputs = sentences(4).batch(np.arange(4)).inputs
    del inputs["labels"]
    with pytest.raises(UserError, match="scored where their labels count: trace the model with labels in its inputs"):
        stage_terms(Stage(), [], {"plain": trace(tagger(), inputs)}, {}, BatchFacts(kind="tags"), Clock())
