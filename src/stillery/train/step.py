"""One optimiser step, run eagerly: forward passes, backward passes, update."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from torch import Tensor, nn

from stillery.models.wanted_outputs import Trace
from stillery.recipe import Clock
from stillery.train.microbatches import MicroBatch
from stillery.train.objective import Losses, Objective
from stillery.train.seeds import seed_generators, step_seed
from stillery.train.step_losses import StepLosses, stacked
from stillery.train.step_plan import StepPlan
from stillery.train.teacher import Teacher

__all__ = ["Step"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """Takes the optimiser steps of a stage, with the trained module, its teacher and the optimiser."""

    module: nn.Module
    objective: Objective
    teacher: Teacher | None
    accelerator: Accelerator
    optimiser: AcceleratedOptimizer
    clip: float

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that are trained."""
        return [parameter for parameter in self.objective.parameters() if parameter.requires_grad]

    def __call__(self, plan: StepPlan, micro_batches: Sequence[MicroBatch], *, grad_norms: bool = False) -> StepLosses:
        """Take a step on micro-batches that are on the device."""
        found = StepLosses(step=plan.clock.step + 1)
        counts = self._counts(plan, micro_batches)
        for number, micro_batch in enumerate(micro_batches):
            with self._gradients_shared(number == len(micro_batches) - 1):
                self._seed(plan.clock, number)
                losses = self.losses(plan, micro_batch, counts)
                found.add(list(losses.terms), stacked(losses), micro_batch.batch.ids)
                if grad_norms:
                    found.add_gradients(losses, self.trained)
                self.backward(losses)
        found.norm = self.update()
        self.optimiser.zero_grad()
        return found

    def losses(self, plan: StepPlan, micro_batch: MicroBatch, counts: Mapping[str, Tensor] | None = None) -> Losses:
        """Compute the losses of one micro-batch; `counts` are those of the whole step, where any are needed."""
        losses: Losses = self.module(plan, micro_batch, self.teacher_outputs(plan, micro_batch), counts)
        return losses

    def teacher_outputs(self, plan: StepPlan, micro_batch: MicroBatch) -> dict[str, Trace]:
        """The teacher's outputs on each view of a micro-batch."""
        if not plan.teacher:
            return {}
        assert self.teacher is not None
        with self.accelerator.autocast():
            return {view: self.teacher.outputs(plan, micro_batch, view) for view in plan.teacher}

    def _seed(self, clock: Clock, number: int) -> None:
        chosen = step_seed(clock.seed, clock.step, number, self.accelerator.process_index)
        seed_generators(chosen, self.accelerator.device)

    def _counts(self, plan: StepPlan, micro_batches: Sequence[MicroBatch]) -> dict[str, Tensor] | None:
        """Sum the counts of a divided step for matches with denominator `counted`, by an additional forward pass."""
        divided = len(micro_batches) > 1 or self.accelerator.num_processes > 1
        if not divided or not plan.counted:
            return None
        totals: dict[str, Tensor] = {}
        for number, micro_batch in enumerate(micro_batches):
            self._seed(plan.clock, number)
            with self.accelerator.autocast():
                found = self.objective.counts_of(plan, micro_batch, self.teacher_outputs(plan, micro_batch))
            for name, counts in found.items():
                own = counts if micro_batch.share["examples"] else torch.zeros_like(counts)
                totals[name] = totals[name] + own if name in totals else own
        return {name: self.accelerator.reduce(counts, "sum") for name, counts in totals.items()}

    def backward(self, losses: Losses) -> None:
        """Accumulate the gradients of a micro-batch."""
        # Processes average their gradients, but the parts of the loss have to be summed.
        self.accelerator.backward(losses.total * self.accelerator.num_processes)

    def update(self) -> Tensor:
        """Clip the gradients and update the weights; return the gradient norm before clipping."""
        norm: Tensor = self.accelerator.clip_grad_norm_(self.trained, self.clip or math.inf)
        self.optimiser.step()
        return norm

    def _gradients_shared(self, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if last else self.accelerator.no_sync(self.module)
