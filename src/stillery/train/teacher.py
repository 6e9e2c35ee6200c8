"""A teacher: gives the Trace of a batch, frozen and without dropout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from stillery.models.trace import Trace
from stillery.terms import Mixed
from stillery.train.objective import Needs, shown_by

__all__ = ["LiveTeacher", "Teacher"]


class Teacher(Protocol):
    """Shows what is needed of a batch."""

    def __call__(
        self,
        inputs: Mapping[str, Tensor],
        needs: Needs,
        mixed: Mixed | None = None,
        index: NDArray[np.int64] | None = None,
    ) -> Trace:
        """The trace of a batch, or of its mixed examples; `index` is where in the training part its examples are."""


@dataclass(frozen=True, eq=False)
class LiveTeacher:
    """Runs the teacher's model on every batch."""

    model: PreTrainedModel

    def __post_init__(self) -> None:
        self.model.eval().requires_grad_(False)

    def __call__(
        self,
        inputs: Mapping[str, Tensor],
        needs: Needs,
        mixed: Mixed | None = None,
        index: NDArray[np.int64] | None = None,
    ) -> Trace:
        """What the teacher shows on a batch, or on its mixed examples: its logits and what is needed of its layers."""
        with torch.no_grad():
            return shown_by(self.model, inputs, needs, mixed)
