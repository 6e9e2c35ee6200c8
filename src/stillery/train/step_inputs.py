"""The inputs of a step from the host: its plan, its examples, and the teacher's cached outputs on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from accelerate import Accelerator

from stillery.data.tokens.batches import windows
from stillery.recipe import Clock
from stillery.train.cuda.graph_step import PackedStep, packed
from stillery.train.microbatches import MicroBatch, split_window
from stillery.train.objective import Objective
from stillery.train.stage_clocks import StageSpan
from stillery.train.step_plan import StepPlan
from stillery.train.teacher import Teacher

__all__ = ["StepInputs", "StepLoader"]


@dataclass(frozen=True, kw_only=True, eq=False)
class StepInputs:
    """A step's plan and micro-batches; `packed` is the one micro-batch of a step that a CUDA graph may replay."""

    plan: StepPlan
    micro_batches: Sequence[MicroBatch]
    packed: PackedStep | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class StepLoader:
    """Prepares the inputs of any step of a stage; with `packs` its one micro-batch is packed for a CUDA graph."""

    span: StageSpan
    batch_size: int
    objective: Objective
    teacher: Teacher | None
    accelerator: Accelerator
    packs: bool
    _orders: dict[int, list[np.ndarray]] = field(default_factory=dict)

    def __call__(self, step: int) -> StepInputs:
        """Return the inputs of a step in host memory, pinned for a GPU."""
        clock, span = self.span.clock(step), self.span
        plan = self.objective.plan(clock)
        window = self._order(clock)[clock.stage_step % span.per_epoch]
        found = split_window(span.data, window, self.batch_size, clock, plan.stage.mixing, self.accelerator)
        if self.teacher is not None and "plain" in plan.teacher:
            needs = plan.teacher["plain"]
            found = [one.with_cached(self.teacher.read(one.batch, needs)) for one in found]
        device = self.accelerator.device
        if device.type != "cuda":
            return StepInputs(plan=plan, micro_batches=found)
        # The current device is per thread.
        with torch.cuda.device(device):
            if self.packs:
                return StepInputs(plan=plan, micro_batches=found, packed=packed(plan, found[0]))
            return StepInputs(plan=plan, micro_batches=[one.pinned() for one in found])

    def _order(self, clock: Clock) -> list[np.ndarray]:
        if clock.epoch not in self._orders:
            self._orders.clear()
            self._orders[clock.epoch] = windows(
                self.span.data.lengths, seed=clock.seed, stage=clock.stage, epoch=clock.epoch, window=self.span.window
            )
        return self._orders[clock.epoch]
