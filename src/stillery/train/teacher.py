"""A teacher: gives the Trace of a batch, frozen and without dropout."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.models.trace import Trace, trace

__all__ = ["LiveTeacher"]


@dataclass(frozen=True, eq=False)
class LiveTeacher:
    """Runs the teacher's model on every batch."""

    model: PreTrainedModel

    def __post_init__(self) -> None:
        self.model.eval().requires_grad_(False)

    def __call__(self, inputs: Mapping[str, Tensor], layers: Collection[int]) -> Trace:
        """What the teacher shows on a batch: its logits and the given layers."""
        with torch.no_grad():
            return trace(self.model, inputs, layers)
