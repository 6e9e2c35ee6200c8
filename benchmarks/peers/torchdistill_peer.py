"""torchdistill: the same losses by a DistillationBox, in a loop a user has to write.

- Hooks on named modules give the losses their inputs. Prediction matching is its own (`KDLoss`, with the labels' loss
  inside); the [CLS] loss is a module of ours, for its own ones are for images.
- It keeps nothing of a teacher and cannot draw pairs of layers anew each epoch (RAIL-KD).
- It imports torchvision, which may not fit the torch it finds: see `torchvision_declared.py`.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
import torchvision_declared  # noqa: F401
from job import Batches, Job, Losses, Watch, adamw, autocast, carry_out, models, patience, version_of
from torch import Tensor, nn


class Patience(nn.Module):
    """PKD's loss, mean over the pairs of layers."""

    def __init__(self, pairs: tuple[tuple[str, str], ...]) -> None:
        super().__init__()
        self.pairs = pairs
        self.first: float | None = None

    def forward(self, student: dict[str, Any], teacher: dict[str, Any], targets: Tensor) -> Tensor:
        found = [patience(_states(student[ours]), _states(teacher[theirs])) for ours, theirs in self.pairs]
        mean = torch.stack(found).mean()
        if self.first is None:
            self.first = float(mean.detach())
        return mean


def _states(shown: dict[str, Any]) -> Tensor:
    output = shown["output"]
    return output[0] if isinstance(output, tuple) else output


def config_of(losses: Losses) -> tuple[dict[str, Any], Patience]:
    """The training as torchdistill's configuration has it."""
    named = tuple(tuple(f"bert.encoder.layer.{layer - 1}" for layer in pair) for pair in losses.pairs)
    layers = Patience(named)
    logits = {
        f"{side}_module_{part}": value
        for side in ("student", "teacher")
        for part, value in (("path", "classifier"), ("io", "output"))
    }
    kd = {"key": "KDLoss", "kwargs": logits | {"temperature": losses.temperature, "alpha": losses.hard}}
    terms: dict[str, Any] = {"kd": {"criterion": kd, "weight": 1.0}}
    if named:
        terms["patience"] = {"criterion": layers, "weight": losses.layers}
    forward = {"forward_proc": "forward_batch_only_as_kwargs"}
    return {
        "num_epochs": 1,
        "teacher": {
            **forward,
            "requires_grad": False,
            "forward_hook": {"output": ["classifier", *(b for _, b in named)]},
        },
        "student": {**forward, "forward_hook": {"output": ["classifier", *(a for a, _ in named)]}},
        "optimizer": {"key": "AdamW", "kwargs": {"lr": 0.0}},
        "criterion": {"key": "WeightedSumLoss", "kwargs": {"sub_terms": terms}},
    }, layers


def train(job: Job) -> dict[str, Any]:
    from torchdistill.core.distillation import DistillationBox

    logging.getLogger("torchdistill").setLevel(logging.WARNING)
    losses, watch = Losses.of(job), Watch(job)
    teacher, student = models(job)
    config, layers = config_of(losses)
    device = torch.device(job.device)
    box = DistillationBox(teacher, student, {}, config, device, None, False, 1.0)
    # Its configuration could say the same; one optimiser for all sides keeps them alike.
    box.optimizer, box.max_grad_norm = adamw(job, student), 1.0
    batches = Batches(job, watch)
    first: dict[str, float] = {}
    watch.start()
    for epoch in range(job.epochs):
        box.pre_epoch_process(epoch=epoch)
        for batch in batches:
            batch = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
            targets = batch.pop("labels")
            box.pre_forward_process()
            with autocast(job):
                loss = box.forward_process(batch, targets, None)
            box.post_forward_process(loss=loss)
            if not first:
                first["loss"] = float(loss.detach())
        box.post_epoch_process()
    if layers.first is not None:
        first["patience"] = layers.first
    return watch.answer(versions={"torchdistill": version_of("torchdistill")}, first=first)


if __name__ == "__main__":
    carry_out(train)
