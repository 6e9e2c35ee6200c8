"""A training loop of one's own has the losses of `stillery distill`, to the last bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertModel, PreTrainedModel

from stillery import Distiller, methods
from stillery.data.tokens.batches import windows
from stillery.errors import UserError
from stillery.models.embedder import SentenceEmbedder
from stillery.models.family import Sizes
from stillery.models.head import reuse_head
from stillery.models.load_model import Loaded
from stillery.train.learning_rate import learning_rate
from stillery.train.loop import Sources, TrainingData, accelerator_for, train
from stillery.train.objective import Objective
from stillery.train.optimiser import adamw, set_rate
from stillery.train.settings import Training
from stillery.train.teacher import LiveTeacher

StudentOf = Callable[..., PreTrainedModel]
SETTINGS = Training(epochs=2, batch_size=16, lr=1e-3, log_every=1, keep="last", clip=0, guards=False, seed=5)
STEPS = {"steps": 8, "steps_per_epoch": 4}
METHODS = (
    "none", "kd", "pkd", "layer-forward", "rail-kd", "tinybert", "ild-rtc", "minilm", "cr-ild", "bert-emd", "codir",
)  # fmt: skip


def student_for(method: str, student_of: StudentOf, teacher: Loaded) -> PreTrainedModel:
    """A student with dropout; narrower where the method brings both widths together."""
    narrow = {"width": 16, "heads": 4} if method in ("layer-forward", "tinybert", "pkd") else {}
    student = student_of(3, **narrow)
    for module in student.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.1
    if methods.build(method).head == "reuse":
        reuse_head(student, teacher, freeze=False)
    return student


def as_given(data: TrainingData, index: np.ndarray) -> dict[str, Tensor]:
    """Examples as a tokenizer and a collator of transformers give them."""
    batch = data.batch(index, 1)
    assert batch.labels is not None
    return {**batch.inputs, "labels": batch.labels, "index": torch.from_numpy(index)}


def logged(folder: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == "train"]


@pytest.mark.parametrize("method", METHODS)
def test_the_losses_of_every_step_are_those_of_a_run(
    method: str, tmp_path: Path, student_of: StudentOf, teacher: Loaded, teacher_sizes: Sizes, data: TrainingData
) -> None:
    """Two stages, random layers, weights that ramp up, MixUp, a transport and a memory, all with dropout."""
    own = Objective(
        student_for(method, student_of, teacher), methods.build(method).stages, teacher=teacher_sizes, seed=5,
        examples=len(data),
    )  # fmt: skip
    sources = Sources(data=data, teacher=LiveTeacher(teacher.model))
    train(own, sources, SETTINGS, accelerator=accelerator_for("fp32"), folder=tmp_path)
    run = logged(tmp_path)
    assert len(run) == 8

    student = student_for(method, student_of, teacher)
    distiller = Distiller(method, teacher.model, student, seed=5, examples=len(data), **STEPS)
    assert distiller.student is student
    stage = None
    for step in run:
        clock = distiller.clock
        if clock.stage != stage:
            stage, optimiser = clock.stage, adamw(distiller, SETTINGS.lr, SETTINGS.weight_decay)
        set_rate(optimiser, learning_rate(SETTINGS.lr, clock.stage_step, clock.stage_steps, SETTINGS.warmup))
        order = windows(data.lengths, seed=5, stage=clock.stage, epoch=clock.epoch, window=16)
        torch.rand(3)  # A loop of one's own may draw what it likes.
        found = distiller(as_given(data, order[clock.stage_step % 4]))
        found.loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        assert found.stage == step["stage"]
        assert {name: float(term) for name, term in found.terms.items()} == step["terms"], clock
        assert float(found.loss.detach()) == step["loss"]
        assert not any(term.requires_grad for term in found.terms.values())
    trained = distiller.state_dict()
    for name, value in own.state_dict().items():
        assert torch.equal(value, trained[f"objective.{name}"]), name


def first(method: str, teacher: Loaded, student: PreTrainedModel, **given: Any) -> Distiller:
    return Distiller(method, teacher.model, student, **{**STEPS, **given})


@pytest.mark.parametrize("method", ["pkd", "layer-forward", "tinybert", "codir"])
def test_gradients_reach_student_and_projections_and_never_the_teacher(
    method: str, student_of: StudentOf, teacher: Loaded, data: TrainingData
) -> None:
    narrow = {} if method == "codir" else {"width": 16, "heads": 4}
    distiller = first(method, teacher, student_of(2, **narrow), examples=len(data))
    distiller(as_given(data, np.arange(8))).loss.backward()
    added = list(distiller.projections.parameters())
    assert added and all(one.grad is not None and float(one.grad.abs().sum()) > 0 for one in added)
    assert {id(one) for one in added} < {id(one) for one in distiller.parameters()}
    theirs = {id(one) for one in teacher.model.parameters()}
    assert not theirs & {id(one) for one in distiller.parameters()}
    assert all(one.grad is None and not one.requires_grad for one in teacher.model.parameters())
    assert not teacher.model.training and distiller.student.training


@pytest.mark.parametrize("method", ["layer-forward", "tinybert"])
def test_with_rows_accumulated_batches_add_up_to_one_large_batch(
    method: str, student_of: StudentOf, teacher: Loaded, data: TrainingData
) -> None:
    """Batches of different sizes and lengths, whose plain mean would be another loss."""
    parts = [np.arange(0, 11), np.arange(11, 14), np.arange(14, 16)]
    whole = first(method, teacher, student_of(2, width=16, heads=4))
    large = whole(as_given(data, np.arange(16)))
    large.loss.backward()
    cut = first(method, teacher, student_of(2, width=16, heads=4))
    batches = [as_given(data, part) for part in parts]
    rows = cut.rows(batches)
    total: dict[str, float] = {}
    for batch in batches:
        assert cut.step == 0
        found = cut(batch, rows)
        found.loss.backward()
        for name, term in found.terms.items():
            total[name] = total.get(name, 0.0) + float(term)
    assert cut.step == 1, "three batches made one optimiser step"
    assert total == pytest.approx({name: float(term) for name, term in large.terms.items()}, rel=1e-5)
    for one, other in zip(whole.parameters(), cut.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(other.grad, one.grad, atol=1e-6, rtol=1e-4)


def test_the_clock_counts_training_passes_and_may_be_set(
    student_of: StudentOf, teacher: Loaded, data: TrainingData
) -> None:
    distiller, batch = first("rail-kd", teacher, student_of(3), accumulate=2), as_given(data, np.arange(4))
    steps = []
    for _ in range(5):
        distiller(batch)
        steps.append(distiller.step)
    assert steps == [0, 1, 1, 2, 2]
    distiller.advance()
    assert distiller.step == 3, "the loop says that the step is over"
    distiller.eval()
    distiller(batch)
    distiller(batch)
    with torch.no_grad():
        distiller.train()(batch)
    assert distiller.step == 3, "neither evaluation nor passes without gradients count"
    distiller.step = 4
    assert (distiller.clock.epoch, distiller.clock.stage_steps, distiller.clock.seed) == (1, 8, 0)


def test_the_stages_follow_each_other_and_the_last_goes_on(student_of: StudentOf, teacher: Loaded, data) -> None:
    distiller, batch = Distiller("tinybert", teacher.model, student_of(2), steps=4), as_given(data, np.arange(4))
    stages = []
    for _ in range(6):
        found = distiller(batch)
        stages.append((found.stage, sorted(found.terms)))
    assert [stage for stage, _ in stages] == ["layers", *["prediction"] * 5]
    assert stages[0][1] != stages[1][1]


def test_a_checkpoint_holds_step_and_projections_but_no_teacher(
    tmp_path: Path, student_of: StudentOf, teacher: Loaded, data: TrainingData
) -> None:
    narrow, batch = {"width": 16, "heads": 4}, as_given(data, np.arange(8))
    distiller = first("layer-forward", teacher, student_of(2, **narrow))
    optimiser = torch.optim.AdamW(distiller.parameters(), lr=1e-2)
    for _ in range(2):
        distiller(batch).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    torch.save(distiller.state_dict(), tmp_path / "at.pt")
    later = distiller(batch)
    again = first("layer-forward", teacher, student_of(2, **narrow), seed=0)
    again.load_state_dict(torch.load(tmp_path / "at.pt", weights_only=True))
    assert again.step == 2
    assert torch.equal(again(batch).loss, later.loss)
    assert not any("teacher" in name and "judges" not in name for name in distiller.state_dict())
    distiller.student.save_pretrained(tmp_path / "small")
    plain = type(distiller.student).from_pretrained(tmp_path / "small")
    assert plain.state_dict().keys() == student_of(2, **narrow).state_dict().keys()


def test_the_loss_of_predictions_alone_needs_no_labels(student_of: StudentOf, teacher: Loaded, data) -> None:
    batch = as_given(data, np.arange(4))
    del batch["labels"]
    free = Distiller("kd", teacher.model, student_of(2), options={"hard_weight": 0})
    assert set(free(batch).terms) == {"soft"}
    with pytest.raises(UserError, match=r"the batch has no labels, and stage train of kd learns from them"):
        Distiller("kd", teacher.model, student_of(2))(batch)


def test_switches_are_options_too(student_of: StudentOf, teacher: Loaded, data: TrainingData) -> None:
    batch = as_given(data, np.arange(4))
    given = [{}, {"distance": "cosine"}, {"pair": "skip"}]
    found = [
        float(Distiller("layer-forward", teacher.model, student_of(2), options=one)(batch).loss.detach())
        for one in given
    ]
    assert len(set(found)) == 3


WRONG: Mapping[str, tuple[dict[str, Any], str]] = {
    "method": ({"recipe": "layer-forwrad"}, "unknown method 'layer-forwrad': did you mean 'layer-forward'?"),
    "option": ({"recipe": "kd", "options": {"temprature": 2}}, "method kd has no option 'temprature'"),
    "both": ({"recipe": "kd", "method": "pkd"}, "both recipe and method are given: give one"),
    "stages": ({"recipe": "tinybert"}, r"the recipe has 2 stages (layers, prediction): give steps"),
    "few": ({"recipe": "tinybert", "steps": 1}, "1 steps in all are too few for 2 stages"),
    "epochs": ({"recipe": "rail-kd"}, "it changes from epoch to epoch: give steps_per_epoch"),
    "memory": ({"recipe": "codir"}, "codir remembers every example: give examples"),
    "similar": ({"options": {"pair": "similar"}}, "its pairing needs the similarity of the layers"),
    "data": ({"options": {"ild_data": "x.txt"}}, "ild_data: only stillery.distill has it"),
    "nothing": (
        {"recipe": "none", "options": {"hard_weight": 0}},
        "stage train: every loss has weight 0, so nothing is learnt",
    ),
    "accumulate": ({"accumulate": 0}, "accumulate is 0: give a whole number of at least 1"),
    "frozen": ({"recipe": "simkd"}, "simkd trains no classifier and uses the teacher's, which the student does not"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_a_method_cannot_do_is_said_before_the_first_step(
    case: str, student_of: StudentOf, teacher: Loaded
) -> None:
    given, line = WRONG[case]
    with pytest.raises(UserError) as raised:
        Distiller(teacher=teacher.model, student=student_of(3, init="random"), **given)
    assert line in str(raised.value)


def test_models_that_cannot_be_trained_are_refused(student_of: StudentOf, teacher: Loaded) -> None:
    model, student = teacher.model, student_of(2)
    other = type(model)(BertConfig(num_labels=3, **SMALL))
    for models, line in (
        ((model, model), "teacher and student are the same model"),
        ((model, None), "student is not given: give a model of transformers"),
        ((model, torch.nn.Linear(2, 2)), "student is a Linear: give a model of transformers"),
        ((BertModel(model.config), student), "teacher is a BertModel: give one that classifies texts or tokens"),
        (
            (SentenceEmbedder.from_config(model.config), student),
            "teacher embeds texts, and there is no loss for that here: models that embed texts are trained by",
        ),
        ((type("SentenceTransformer", (torch.nn.Sequential,), {})(), student), "are trained by stillery.distill"),
        ((other, student), "the student has 2 labels, the teacher 3"),
        ((None, student), "stage train matches a teacher, and none is given"),
    ):
        with pytest.raises(UserError) as raised:
            Distiller("pkd", *models)
        assert line in str(raised.value)


SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 50}


def test_batches_that_are_none_are_refused(student_of: StudentOf, teacher: Loaded, data: TrainingData) -> None:
    distiller, batch = Distiller("kd", teacher.model, student_of(2)), as_given(data, np.arange(4))
    with pytest.raises(UserError, match="the batch is no dictionary of tensors with input_ids"):
        distiller(["A quiet triumph."])
    with pytest.raises(UserError, match=r"the labels have the shape \(4, 2\), and a student that predicts classes"):
        distiller(batch | {"labels": torch.zeros(4, 2)})
