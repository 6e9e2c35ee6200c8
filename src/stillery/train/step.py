"""One step of the optimiser, operation by operation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from torch import Tensor, nn

from stillery.models.outputs import Trace
from stillery.recipe import Clock, Stage
from stillery.train.microbatches import Part
from stillery.train.objective import Losses, Objective
from stillery.train.seeds import seed_generators, step_seed
from stillery.train.step_losses import Said, spoken
from stillery.train.step_plan import needs_of
from stillery.train.teacher import Teacher

__all__ = ["Step", "teaching_views"]


def teaching_views(stage: Stage) -> list[str]:
    """The views of a batch that a stage looks at its teacher on."""
    matched = {match.view for match in stage.matches if match.against == "teacher"}
    return [view for view in ("plain", "mixed") if view in matched or (view == "plain" and stage.prediction)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """What the steps of a stage are made with: who is trained, by whom, and the optimiser."""

    module: nn.Module
    objective: Objective
    teacher: Teacher | None
    accelerator: Accelerator
    optimiser: AcceleratedOptimizer
    clip: float

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that change."""
        return [parameter for parameter in self.objective.parameters() if parameter.requires_grad]

    def __call__(self, parts: Sequence[Part], clock: Clock, *, grad_norms: bool = False) -> Said:
        """Take a step on micro-batches, which are on the device."""
        said = Said(step=clock.step + 1)
        counts = self._counts(parts, clock)
        for number, part in enumerate(parts):
            with self._gradients_shared(number == len(parts) - 1):
                self._seed(clock, number)
                losses = self.losses(part, clock, counts)
                said.add(list(losses.terms), spoken(losses), part.batch.ids)
                if grad_norms:
                    said.add_gradients(losses, self.trained)
                self.backward(losses)
        said.norm = self.move()
        self.optimiser.zero_grad()
        return said

    def losses(self, part: Part, clock: Clock, counts: Mapping[str, Tensor] | None = None) -> Losses:
        """The losses of one micro-batch; `counts` are those of the whole step, where it had to be counted."""
        shown = self.shown(part, clock)
        inputs = part.batch.inputs
        losses: Losses = self.module(
            inputs, part.batch.labels, shown, clock, part.share, part.mixed, part.places, part.batch.generated,
            counts=counts,
        )  # fmt: skip
        return losses

    def shown(self, part: Part, clock: Clock) -> dict[str, Trace]:
        """What the teacher shows of each view of a micro-batch."""
        objective, inputs = self.objective, part.batch.inputs
        stage = objective.stages[clock.stage]
        shown: dict[str, Trace] = {}
        if stage.needs_teacher:
            assert self.teacher is not None
            with self.accelerator.autocast():
                for view in teaching_views(stage):
                    _, needs = needs_of(stage, objective.between[clock.stage], clock, view)
                    plain = view == "plain"
                    shown[view] = self.teacher(
                        inputs, needs, None if plain else part.mixed, part.kept if plain else None,
                        logits=plain and stage.prediction is not None,
                    )  # fmt: skip
        return shown

    def _seed(self, clock: Clock, number: int) -> None:
        chosen = step_seed(clock.seed, clock.step, number, self.accelerator.process_index)
        seed_generators(chosen, self.accelerator.device)

    def _counts(self, parts: Sequence[Part], clock: Clock) -> dict[str, Tensor] | None:
        """What matches that count themselves count in the whole step, where that is cut: a look ahead of its own."""
        cut = len(parts) > 1 or self.accelerator.num_processes > 1
        if not cut or not self.objective.counts_itself(clock.stage):
            return None
        totals: dict[str, Tensor] = {}
        for number, part in enumerate(parts):
            self._seed(clock, number)
            with self.accelerator.autocast():
                found = self.objective.counts_of(part.batch.inputs, self.shown(part, clock), clock, part.mixed)
            for name, counts in found.items():
                held = counts if part.share["examples"] else torch.zeros_like(counts)
                totals[name] = totals[name] + held if name in totals else held
        return {name: self.accelerator.reduce(counts, "sum") for name, counts in totals.items()}

    def backward(self, losses: Losses) -> None:
        """Add the gradients of a micro-batch."""
        # Processes average their gradients; the parts of the loss are to be added up.
        self.accelerator.backward(losses.total * self.accelerator.num_processes)

    def move(self) -> Tensor:
        """Clip the gradients and move the weights; return the norm the gradients had."""
        norm: Tensor = self.accelerator.clip_grad_norm_(self.trained, self.clip or math.inf)
        self.optimiser.step()
        return norm

    def _gradients_shared(self, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if last else self.accelerator.no_sync(self.module)
