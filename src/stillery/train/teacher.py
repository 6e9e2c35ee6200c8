"""A teacher gives its outputs on the batches of a step, frozen and without dropout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.data.tokens.batches import Batch
from stillery.losses import Mixed
from stillery.models.wanted_outputs import Trace
from stillery.train.forward_pass import outputs_of
from stillery.train.microbatches import MicroBatch
from stillery.train.step_plan import Needs, StepPlan
from stillery.train.teacher_cache.contents import CachedArray

__all__ = ["LiveTeacher", "Teacher"]


class Teacher(Protocol):
    """Gives the outputs that a step's plan names."""

    def read(self, batch: Batch, needs: Needs) -> dict[CachedArray, Tensor] | None:
        """The cached outputs on these examples; None where the teacher must run on them."""

    def outputs(self, plan: StepPlan, micro_batch: MicroBatch, view: str) -> Trace:
        """The outputs on a view of a micro-batch: from what was read of the cache for it, or by running the model."""


@dataclass(frozen=True, eq=False)
class LiveTeacher:
    """Runs the teacher's model on every batch; `drop_start` as for the student's `Objective`.

    `host_weights` are its weights in the host's memory, where they stayed when the model went to a GPU and may be
    offloaded again.
    """

    model: PreTrainedModel
    drop_start: bool = False
    host_weights: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model.eval().requires_grad_(False)

    def bring(self, device: torch.device, *, may_offload: bool) -> None:
        """Move the model to a device; where it may be offloaded, its weights also stay where they are."""
        if may_offload and device.type != "cpu" and self.model.device.type == "cpu":
            self.host_weights.update(self.model.state_dict())
        self.model.to(device)  # type: ignore[arg-type]

    def read(self, batch: Batch, needs: Needs) -> dict[CachedArray, Tensor] | None:
        """Nothing is cached: the model runs."""
        return None

    def outputs(self, plan: StepPlan, micro_batch: MicroBatch, view: str) -> Trace:
        """Run the model on a view of a micro-batch; logits where predictions are matched, on plain examples."""
        plain = view == "plain"
        return self(
            micro_batch.batch.teacher_inputs,
            plan.teacher[view],
            None if plain else micro_batch.mixed,
            logits=plain and plan.stage.prediction is not None,
        )

    def __call__(
        self,
        inputs: Mapping[str, Tensor],
        needs: Needs,
        mixed: Mixed | None = None,
        *,
        logits: bool = True,
        shorten: Callable[[Tensor], Tensor] | None = None,
    ) -> Trace:
        """Run the model on a batch, or on its mixed examples, and keep its logits and what is needed of its layers.

        Without `logits` it stops after the last layer that is needed; `shorten` is applied to every state kept.
        """
        with torch.no_grad():
            return outputs_of(self.model, inputs, needs, mixed, self.drop_start, logits=logits, shorten=shorten)
