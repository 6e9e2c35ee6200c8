"""Teachers, which provide their outputs on the batches of a step, frozen and without dropout."""

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
    """Provides the teacher outputs that a step's plan requires."""

    def read(self, batch: Batch, needs: Needs) -> dict[CachedArray, Tensor] | None:
        """The cached outputs on these examples; None where the teacher must run on them."""

    def outputs(self, plan: StepPlan, micro_batch: MicroBatch, view: str) -> Trace:
        """The outputs on a view of a micro-batch, from its cached outputs or by running the model."""


@dataclass(frozen=True, eq=False)
class LiveTeacher:
    """Runs the teacher's model on every batch; `drop_start` as for the student's `Objective`.

    `host_weights` are the copies of its weights that stayed in host memory when the model moved to a GPU, for
    offloading.
    """

    model: PreTrainedModel
    drop_start: bool = False
    host_weights: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model.eval().requires_grad_(False)

    def bring(self, device: torch.device, *, may_offload: bool) -> None:
        """Move the model to a device; if it may be offloaded, keep its weights in host memory too."""
        if may_offload and device.type != "cpu" and self.model.device.type == "cpu":
            self.host_weights.update(self.model.state_dict())
        self.model.to(device)  # type: ignore[arg-type]

    def read(self, batch: Batch, needs: Needs) -> dict[CachedArray, Tensor] | None:
        """Return None: nothing is cached, so the model runs."""
        return None

    def outputs(self, plan: StepPlan, micro_batch: MicroBatch, view: str) -> Trace:
        """Run the model on a view of a micro-batch; with logits if predictions are matched, on plain examples."""
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
        """Run the model on a batch, or on its mixed examples; return its logits and the needed outputs of its layers.

        Without `logits` it stops after the last needed layer; `shorten` is applied to every hidden state kept.
        """
        with torch.no_grad():
            return outputs_of(self.model, inputs, needs, mixed, self.drop_start, logits=logits, shorten=shorten)
