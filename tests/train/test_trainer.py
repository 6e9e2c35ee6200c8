"""A Trainer of transformers that distils: the losses of `stillery distill`, plain students, exact resuming."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import SequentialSampler
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedModel,
    TrainerCallback,
    TrainingArguments,
)

from stillery import DistillationTrainer, methods
from stillery.data.tokens.batches import windows
from stillery.errors import UserError
from stillery.models.family import Sizes
from stillery.models.load_model import Loaded
from stillery.train.loop import Sources, TrainingData, accelerator_for, train
from stillery.train.objective import Objective
from stillery.train.settings import Training
from stillery.train.teacher import LiveTeacher

StudentOf = Callable[..., PreTrainedModel]
NARROW = {"width": 16, "heads": 4}


class InOrder(DistillationTrainer):
    """Takes the examples as they come."""

    def _get_train_sampler(self, train_dataset: Any = None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)


def rows_of(data: TrainingData, order: np.ndarray) -> list[dict[str, Any]]:
    """Tokenised examples as a dataset has them, with a column that no model takes."""
    found = []
    for index in order:
        batch = data.batch(np.array([index]), 1)
        inputs = {name: tensor[0].tolist() for name, tensor in batch.inputs.items()}
        found.append({**inputs, "labels": int(batch.labels[0]), "note": "left out"})
    return found


def arguments(folder: Path, **given: Any) -> TrainingArguments:
    named = {
        "num_train_epochs": 1, "per_device_train_batch_size": 16, "learning_rate": 1e-3, "weight_decay": 0.01,
        "max_grad_norm": 0.0, "logging_steps": 1, "save_strategy": "no", "report_to": "none", "seed": 5,
        "disable_tqdm": True, "use_cpu": True,
    }  # fmt: skip
    return TrainingArguments(output_dir=str(folder), **named | given)


@pytest.fixture
def rows(data: TrainingData) -> list[dict[str, Any]]:
    """The examples in the order of a run of `stillery distill`."""
    return rows_of(data, np.concatenate(windows(data.lengths, seed=5, stage=0, epoch=0, window=16)))


@pytest.fixture
def make(tmp_path: Path, student_of: StudentOf, teacher: Loaded, rows: list[dict[str, Any]]) -> Callable[..., Any]:
    def trainer(folder: str = "out", *, student: PreTrainedModel | None = None, **given: Any) -> DistillationTrainer:
        own = {name: given.pop(name) for name in ("method", "options", "optimizers", "callbacks") if name in given}
        return InOrder(
            student or student_of(2, **NARROW),
            arguments(tmp_path / folder, **given),
            DataCollatorWithPadding(teacher.tokenizer),
            teacher=teacher.model,
            train_dataset=rows,
            **own,
        )

    return trainer


def terms(trainer: DistillationTrainer) -> list[dict[str, float]]:
    return [
        {name: line[name] for name in sorted(line) if name.startswith("loss")}
        for line in trainer.state.log_history
        if "loss" in line
    ]


@pytest.mark.parametrize("method", ["pkd", "layer-forward"])
def test_the_first_losses_are_those_of_a_run(
    method: str, tmp_path: Path, make, student_of: StudentOf, teacher: Loaded, teacher_sizes: Sizes, data: TrainingData
) -> None:
    own = Objective(student_of(2, **NARROW), methods.build(method).stages, teacher=teacher_sizes, seed=5)
    settings = Training(epochs=1, batch_size=16, lr=1e-3, warmup=0, clip=0, log_every=1, keep="last", seed=5)
    sources = Sources(data=data, teacher=LiveTeacher(teacher.model))
    train(own, sources, settings, accelerator=accelerator_for("fp32"), folder=tmp_path)
    run = [line for line in map(json.loads, (tmp_path / "log.jsonl").open()) if line["event"] == "train"]
    trainer = make(method=method)
    trainer.train()
    found = terms(trainer)
    assert len(found) == len(run) == 4
    for one, step in zip(found, run, strict=True):
        assert one == pytest.approx(
            {"loss": step["loss"]} | {f"loss_{k}": v for k, v in step["terms"].items()}, rel=2e-5
        )
    assert found[0]["loss"] == pytest.approx(run[0]["loss"], rel=1e-6)
    for name, value in own.student.state_dict().items():
        torch.testing.assert_close(trainer.model.state_dict()[name], value, atol=1e-5, rtol=1e-4, msg=name)


def test_accumulated_batches_are_one_step(make) -> None:
    whole, cut = make("whole"), make("cut", per_device_train_batch_size=4, gradient_accumulation_steps=4)
    for trainer in (whole, cut):
        trainer.train()
    for one, other in zip(terms(whole), terms(cut), strict=True):
        assert other == pytest.approx(one, rel=1e-4)


def test_projections_are_trained_and_the_saved_model_is_plain(tmp_path: Path, make, teacher: Loaded) -> None:
    seen: list[Any] = []

    class Sees(TrainerCallback):
        def on_step_end(self, *_: Any, model: Any, **__: Any) -> None:
            seen.append(model)

    trainer = make(callbacks=[Sees()], max_steps=1)
    trainer.train()
    assert trainer.model is seen[0] is trainer.distiller.student
    projection = next(trainer.distiller.projections.parameters())
    held = [one for group in trainer.optimizer.param_groups for one in group["params"]]
    assert any(one is projection for one in held)
    assert not {id(one) for one in held} & {id(one) for one in teacher.model.parameters()}
    assert trainer.optimizer.state[projection]["exp_avg"].abs().sum() > 0
    trainer.save_model(str(tmp_path / "small"))
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "small")
    assert {name: tuple(value.shape) for name, value in plain.state_dict().items()} == {
        name: tuple(value.shape) for name, value in trainer.model.state_dict().items()
    }
    assert not (tmp_path / "small/distiller.safetensors").exists()
    scores = trainer.evaluate(trainer.train_dataset)
    labels = torch.tensor([row["labels"] for row in trainer.train_dataset])
    logits = torch.from_numpy(trainer.predict(trainer.train_dataset).predictions)
    assert scores["eval_loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(logits, labels)), rel=1e-4)


def test_a_resumed_training_ends_with_the_same_bits(tmp_path: Path, make, student_of: StudentOf) -> None:
    """A method of two stages, with dropout; the checkpoint is in the first of them."""

    def student() -> PreTrainedModel:
        made = student_of(2, **NARROW)
        for module in made.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.1
        return made

    given = {"method": "tinybert", "save_strategy": "steps", "save_steps": 1, "num_train_epochs": 2}
    through = make("through", student=student(), **given)
    through.train()
    again = make("again", student=student(), **given)
    again.train(resume_from_checkpoint=str(tmp_path / "through/checkpoint-1"))
    assert again.distiller.step == 8
    ends = [one.distiller.state_dict() for one in (through, again)]
    for name, value in ends[0].items():
        assert torch.equal(ends[1][name], value), name
    assert terms(again)[1:] == terms(through)[1:]
    (tmp_path / "through/checkpoint-2/distiller.safetensors").unlink()
    with pytest.raises(UserError, match="so this is no checkpoint of a DistillationTrainer"):
        make("third", **given).train(resume_from_checkpoint=str(tmp_path / "through/checkpoint-2"))


def test_what_cannot_be_trained_is_said_in_one_line(make, student_of: StudentOf, teacher: Loaded, tmp_path) -> None:
    with pytest.raises(UserError, match="unknown method 'pdk'"):
        make(method="pdk")
    with pytest.raises(UserError, match="label_smoothing_factor: the method's loss has none"):
        make(label_smoothing_factor=0.1)
    with pytest.raises(UserError, match="teacher and student are the same model"):
        make(student=teacher.model)
    with pytest.raises(UserError, match="student is not given"):
        DistillationTrainer(teacher=teacher.model, args=arguments(tmp_path))
    student = student_of(2, **NARROW)
    own = torch.optim.SGD(student.parameters(), lr=0.1)
    with pytest.raises(
        UserError, match=r"optimizers: \d+ weights of the method's projections are not in the optimiser"
    ):
        make(student=student, optimizers=(own, None)).train()
