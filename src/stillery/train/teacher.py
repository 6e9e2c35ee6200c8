"""A teacher: gives the Trace of a batch, frozen and without dropout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.models.trace import Trace
from stillery.terms import Mixed
from stillery.train.objective import Needs, shown_by

__all__ = ["LiveTeacher"]


@dataclass(frozen=True, eq=False)
class LiveTeacher:
    """Runs the teacher's model on every batch; `drop_start` as for the student's `Objective`."""

    model: PreTrainedModel
    drop_start: bool = False

    def __post_init__(self) -> None:
        self.model.eval().requires_grad_(False)

    def __call__(self, inputs: Mapping[str, Tensor], needs: Needs, mixed: Mixed | None = None) -> Trace:
        """What the teacher shows on a batch, or on its mixed examples: its logits and what is needed of its layers."""
        with torch.no_grad():
            return shown_by(self.model, inputs, needs, mixed, self.drop_start)
