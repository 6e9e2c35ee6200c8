"""NVIDIA Model Optimizer: the same losses by `modelopt.torch.distill`, in a loop a user has to write.

- `mtd.convert` makes student and teacher one model that compares the outputs of named modules. Prediction matching is
  its own (`LogitsDistillationLoss`); the [CLS] loss is a module of ours, for it has none for layers of Transformers.
- Its `KDTrainer` for transformers matches predictions only, so it cannot be used here.
- The weights of its losses may not exceed 1 together, so every loss is scaled to its weight inside.
- It keeps nothing of a teacher and cannot draw pairs of layers anew each epoch (RAIL-KD).
- It imports requests without asking for it, so the extra `bench` asks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from job import Batches, Job, Losses, Watch, adamw, autocast, carry_out, models, patience, version_of
from torch import Tensor, nn
from torch.nn.modules.loss import _Loss


class Scaled(_Loss):
    """A loss on the outputs of two modules, at the size that its share in the sum makes right."""

    def __init__(self, measure: Callable[[Tensor, Tensor], Tensor], scale: float) -> None:
        super().__init__()
        self.measure, self.scale = measure, scale
        self.first: float | None = None

    def forward(self, student: Any, teacher: Any) -> Tensor:
        found = self.measure(*(shown[0] if isinstance(shown, tuple) else shown for shown in (student, teacher)))
        if self.first is None:
            self.first = float(found.detach())
        return self.scale * found


def converted(student: nn.Module, teacher: nn.Module, losses: Losses) -> tuple[nn.Module, list[Scaled]]:
    """Student and teacher as one model with the losses of a method, and those of the pairs of layers."""
    import modelopt.torch.distill as mtd

    share = (1 - losses.hard) / (1 + len(losses.pairs))
    soft = mtd.LogitsDistillationLoss(temperature=losses.temperature, reduction="batchmean")
    matches = [Scaled(patience, losses.layers / len(losses.pairs) / share) for _ in losses.pairs]
    criterion = {
        (f"bert.encoder.layer.{ours - 1}", f"bert.encoder.layer.{theirs - 1}"): match
        for (ours, theirs), match in zip(losses.pairs, matches, strict=True)
    }
    criterion["classifier", "classifier"] = Scaled(soft, losses.soft / share)
    balancer = mtd.StaticLossBalancer([share] * len(criterion))
    config = {"teacher_model": teacher, "criterion": criterion, "loss_balancer": balancer}
    return mtd.convert(student, mode=[("kd_loss", config)]), matches


def train(job: Job) -> dict[str, Any]:
    warnings.filterwarnings("ignore", message="`StaticLossBalancer` weights")
    losses, watch = Losses.of(job), Watch(job)
    teacher, student = models(job)
    trained = list(student.parameters())
    model, matches = converted(student, teacher, losses)
    optimiser = adamw(job, model)
    batches = Batches(job, watch)
    first: dict[str, float] = {}
    watch.start()
    for _ in range(job.epochs):
        model.train()
        for batch in batches:
            batch = {name: tensor.to(job.device, non_blocking=True) for name, tensor in batch.items()}
            with autocast(job):
                hard = model(**batch).loss
                loss = model.compute_kd_loss(student_loss=hard)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimiser.step()
            optimiser.zero_grad()
            if not first:
                first |= {"hard": float(hard.detach()), "loss": float(loss.detach())}
    if matches:
        first["patience"] = sum(match.first or 0.0 for match in matches) / len(matches)
    return watch.answer(versions={"nvidia-modelopt": version_of("nvidia-modelopt")}, first=first)


if __name__ == "__main__":
    carry_out(train)
