"""A teacher: gives the Trace of a batch, frozen and without dropout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from stillery.losses import Mixed
from stillery.models.outputs import Trace
from stillery.train.step_plan import Needs, shown_by
from stillery.train.teacher_cache.contents import What

__all__ = ["LiveTeacher", "Teacher"]


class Teacher(Protocol):
    """Shows what is needed of a batch."""

    def read(self, index: NDArray[np.int64], longest: int, needs: Needs) -> dict[What, Tensor] | None:
        """What was kept of the examples at these places of the training part; None where the teacher runs on them."""

    def __call__(
        self,
        inputs: Mapping[str, Tensor],
        needs: Needs,
        mixed: Mixed | None = None,
        kept: Mapping[What, Tensor] | None = None,
        logits: bool = True,
    ) -> Trace:
        """The trace of a batch, or of its mixed examples, or of what was `kept` of it; `logits` if they are needed."""


@dataclass(frozen=True, eq=False)
class LiveTeacher:
    """Runs the teacher's model on every batch; `drop_start` as for the student's `Objective`.

    `home` are its weights in the host's memory, where it left them when it went to a GPU and may come back.
    """

    model: PreTrainedModel
    drop_start: bool = False
    home: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model.eval().requires_grad_(False)

    def bring(self, device: torch.device, *, comes_back: bool) -> None:
        """Bring the model to a device; where it may come back, its weights also stay where they are."""
        if comes_back and device.type != "cpu" and self.model.device.type == "cpu":
            self.home.update(self.model.state_dict())
        self.model.to(device)  # type: ignore[arg-type]

    def read(self, index: NDArray[np.int64], longest: int, needs: Needs) -> dict[What, Tensor] | None:
        """Nothing: it runs."""
        return None

    def __call__(
        self,
        inputs: Mapping[str, Tensor],
        needs: Needs,
        mixed: Mixed | None = None,
        kept: Mapping[What, Tensor] | None = None,
        logits: bool = True,
        shorten: Callable[[Tensor], Tensor] | None = None,
    ) -> Trace:
        """What the teacher shows on a batch, or on its mixed examples: its logits and what is needed of its layers.

        Without `logits` it stops behind the last layer that is needed; of states what `shorten` makes of them is kept.
        """
        with torch.no_grad():
            return shown_by(self.model, inputs, needs, mixed, self.drop_start, logits=logits, shorten=shorten)
