"""Pseudo classifiers on intermediate layers (Universal-KD)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillery.parts._wide import wide
from stillery.recipe import CriterionBatch, CriterionSizes

__all__ = ["FIT", "PseudoClassifiers"]

FIT = "teacher_heads"
"""The name of the match that fits the teacher's pseudo classifiers; any other matches predictions."""


class PseudoClassifiers(nn.Module):
    """A linear classifier on every matched layer of student and teacher, used in training only.

    For the match named `FIT` the loss fits the teacher's classifiers to the labels. For any other it compares each
    student layer's prediction with a mean of the teacher layers' predictions, weighted by the softmax of the dot
    products of their logits with the student's, as ALP-KD weights states.
    """

    needs_labels = True
    one_class = True

    def __init__(self, around: CriterionSizes, *, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature
        classes = around.classes
        self.student = nn.ModuleList(nn.Linear(width, classes) for width in around.student)
        self.teacher = nn.ModuleList(nn.Linear(width, classes) for width in around.teacher[0])

    def forward(self, pairs: Sequence[tuple[Tensor, Sequence[Tensor]]], batch: CriterionBatch) -> Tensor:
        """Mean over student layers of KL(weighted teacher prediction || student prediction), or the fitting loss."""
        if batch.match == FIT:
            return self._fit(pairs[0][1], batch)
        losses = [self._matched(slot, ours, theirs, batch) for slot, (ours, theirs) in enumerate(pairs)]
        return torch.stack(losses).mean()

    def _fit(self, layers: Sequence[Tensor], batch: CriterionBatch) -> Tensor:
        assert batch.labels is not None
        outputs = [wide(head(states)) for head, states in zip(self.teacher, layers, strict=True)]
        if batch.regression:
            return torch.stack([F.mse_loss(one.squeeze(-1), batch.labels.to(one.dtype)) for one in outputs]).mean()
        return torch.stack([F.cross_entropy(one, batch.labels) for one in outputs]).mean()

    def _matched(self, slot: int, ours: Tensor, theirs: Sequence[Tensor], batch: CriterionBatch) -> Tensor:
        student = wide(self.student[slot](ours))
        with torch.no_grad():
            # [batch, layers, classes]
            teacher = torch.stack([wide(head(states)) for head, states in zip(self.teacher, theirs, strict=True)], 1)
        weights = (teacher @ student.unsqueeze(-1)).squeeze(-1).softmax(-1).unsqueeze(-1)
        if batch.regression:
            return F.mse_loss(student, (weights * teacher).sum(1))
        target = (weights * (teacher / self.temperature).softmax(-1)).sum(1)
        log_student = F.log_softmax(student / self.temperature, dim=-1)
        return F.kl_div(log_student, target, reduction="batchmean") * self.temperature**2
