"""What a step needs from the host: its examples, and what is kept of the teacher on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from accelerate import Accelerator

from stillery.data.tokens.batches import windows
from stillery.recipe import Clock
from stillery.train.cuda.graph_step import Packed, packed
from stillery.train.data import Trainable
from stillery.train.microbatches import Part, cut_window
from stillery.train.objective import Objective
from stillery.train.step import teaching_views
from stillery.train.step_plan import Meeting, Needs, meeting_of, needs_at
from stillery.train.teacher import Teacher

__all__ = ["Preparing"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Preparing:
    """Makes the micro-batches of any step of a stage; `packs` says that each is to be packed as a whole step."""

    clock_of: Callable[[int], Clock]
    per_epoch: int
    window: int
    batch_size: int
    objective: Objective
    data: Trainable
    teacher: Teacher | None
    accelerator: Accelerator
    packs: bool
    _orders: dict[int, list[np.ndarray]] = field(default_factory=dict)
    _needs: dict[Meeting, Needs] = field(default_factory=dict)

    def __call__(self, step: int) -> tuple[list[Part], Packed | None]:
        """The micro-batches of a step on the host, in memory that a GPU can fetch from, or the one of them packed."""
        clock = self.clock_of(step)
        stage = self.objective.stages[clock.stage]
        chosen = self._order(clock)[clock.stage_step % self.per_epoch]
        parts = cut_window(self.data, chosen, self.batch_size, clock, stage.mixing, self.accelerator)
        if self.teacher is not None and "plain" in teaching_views(stage):
            needs = self._needs_of_teacher(clock)
            parts = [replace(part, kept=self.teacher.read(*_places(part), needs)) for part in parts]
        device = self.accelerator.device
        if device.type != "cuda":
            return parts, None
        # Threads choose their device each for itself.
        with torch.cuda.device(device):
            if self.packs:
                return parts, packed(self.objective, parts[0], clock)
            return [part.pinned() for part in parts], None

    def _needs_of_teacher(self, clock: Clock) -> Needs:
        """What the teacher has to show of plain examples, the same wherever the same layers meet."""
        stage = self.objective.stages[clock.stage]
        meeting = meeting_of(stage, self.objective.between[clock.stage], clock)
        if meeting not in self._needs:
            self._needs.clear()
            self._needs[meeting] = needs_at(stage, meeting, "plain")[1]
        return self._needs[meeting]

    def _order(self, clock: Clock) -> list[np.ndarray]:
        if clock.epoch not in self._orders:
            self._orders.clear()
            self._orders[clock.epoch] = windows(
                self.data.lengths, seed=clock.seed, stage=clock.stage, epoch=clock.epoch, window=self.window
            )
        return self._orders[clock.epoch]


def _places(part: Part) -> tuple[np.ndarray, int]:
    return part.batch.index, part.batch.inputs["input_ids"].shape[1]
