"""Try several starts of a student for a few steps each, and measure which of them learns best.

All starts see the same batches in the same order with the same seed, and are compared by the loss on training examples
that none of them was trained on. One model is trained again and again from other weights, so that on a GPU a step that
was recorded for the first start serves the others too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import PreTrainedModel

from stillery.data.tokens.batches import windows
from stillery.losses import Kind, Mixed
from stillery.models.family import stack_sizes
from stillery.models.outputs import Stack, Trace
from stillery.progress import bar
from stillery.recipe import Clock, Stage
from stillery.train.cuda.graph_step import Graphs, packed, why_not
from stillery.train.cuda.memory import free_cached
from stillery.train.cuda.stream import own_stream
from stillery.train.data import Trainable, TrainingData
from stillery.train.microbatches import Part, cut_window
from stillery.train.objective import Objective
from stillery.train.optimiser import adamw, set_rate
from stillery.train.schedule import learning_rate
from stillery.train.settings import Training
from stillery.train.step import Step
from stillery.train.step_plan import Needs
from stillery.train.teacher import LiveTeacher, Teacher
from stillery.train.teacher_cache.contents import What, frame_of, shown_again

__all__ = ["HELD_OUT", "LEAST_STEPS", "MOST_STEPS", "SHARE", "Probe", "Weights", "probe_steps"]

SHARE = 0.15
"""The largest share of a run's optimiser steps that trying starts may cost."""

MOST_STEPS, LEAST_STEPS = 48, 12
"""Steps that a start is tried for: more tell little more, fewer tell nothing."""

HELD_OUT = 8
"""Batches of training examples that no start is trained on and all are compared by."""

_ORDER = 0x57A27  # the shuffle of a probe is not that of any stage

Weights = Callable[[], Mapping[str, Tensor]]
"""Makes the weights of a student at one start."""


def probe_steps(total: int, starts: int) -> int:
    """Steps that each of so many starts can be tried for, within `SHARE` of a run of `total` steps; 0 if too few.

    Counted in steps of the run: the teacher's one pass over the batches is at most another start, and scoring a held
    out batch a third of a step.

    >>> probe_steps(1336, 4), probe_steps(300, 4), probe_steps(300, 2)
    (41, 0, 14)
    """
    steps = int((SHARE * total - HELD_OUT * (starts / 3 + 0.5)) / (starts + 0.5))
    return min(MOST_STEPS, steps) if steps >= LEAST_STEPS else 0


@dataclass(frozen=True, kw_only=True, eq=False)
class _Answers:
    """A teacher of classifiers whose logits on the probe's examples are kept in memory: it runs once for all starts."""

    logits: Mapping[int, Tensor]
    frame: Stack

    def read(self, index: np.ndarray, longest: int, needs: Needs) -> dict[What, Tensor] | None:
        """The logits of these examples."""
        return {What("logits"): torch.stack([self.logits[int(place)] for place in index])}

    def __call__(
        self,
        inputs: Mapping[str, Tensor],
        needs: Needs,
        mixed: Mixed | None = None,
        kept: Mapping[What, Tensor] | None = None,
        logits: bool = True,
    ) -> Trace:
        """A trace of the kept logits."""
        assert kept is not None
        return shown_again(kept, self.frame, inputs["attention_mask"])


@dataclass(frozen=True, kw_only=True, eq=False)
class Probe:
    """What every start is tried with: a student to put weights into, the data, the losses and the run's settings."""

    student: PreTrainedModel
    teacher: LiveTeacher
    data: Trainable
    kind: Kind
    stage: Stage
    training: Training
    accelerator: Accelerator

    def __call__(self, starts: Mapping[str, Weights], steps: int) -> dict[str, float]:
        """The held-out loss of each start after so many steps."""
        training, accelerator = self.training, self.accelerator
        window = training.batch_size * training.accumulate * accelerator.num_processes
        order = windows(self.data.lengths, seed=training.seed, stage=_ORDER, epoch=0, window=window)
        held = min(HELD_OUT, max(1, len(order) // 4))
        clocks = [Clock(seed=training.seed, step=step, stage_step=step, stage_steps=steps) for step in range(steps)]
        learnt = [order[step % max(len(order) - held, 1)] for step in range(steps)]
        with own_stream(accelerator.device):
            self.teacher.bring(accelerator.device, comes_back=True)
            batches = [self._cut(chosen, clock) for chosen, clock in zip(learnt, clocks, strict=True)]
            kept_out = [self._cut(chosen, clocks[0]) for chosen in order[-held:]]
            teacher = self._teacher([*batches, *kept_out])
            if not isinstance(teacher, LiveTeacher):
                batches = [[_with_answers(part, teacher) for part in parts] for parts in batches]
                kept_out = [[_with_answers(part, teacher) for part in parts] for parts in kept_out]
            try:
                return self._tried(starts, teacher, batches, kept_out, clocks)
            finally:
                accelerator._optimizers.clear()
                accelerator._models.clear()
                free_cached()

    def _cut(self, chosen: np.ndarray, clock: Clock) -> list[Part]:
        return cut_window(self.data, chosen, self.training.batch_size, clock, None, self.accelerator)

    def _teacher(self, batches: Sequence[Sequence[Part]]) -> Teacher:
        """A teacher that has answered already; one that generates text runs in every step, its logits are too large."""
        if not isinstance(self.data, TrainingData):
            return self.teacher
        logits: dict[int, Tensor] = {}
        frame: Stack | None = None
        for part in (part for parts in batches for part in parts):
            if all(int(place) in logits for place in part.batch.index):
                continue
            there = part.to(self.accelerator.device)
            with self.accelerator.autocast():
                shown = self.teacher(there.batch.inputs, {}, logits=True)
            frame = frame or frame_of(shown.stack())
            logits.update(zip(part.batch.index.tolist(), shown.logits.cpu(), strict=True))
        assert frame is not None
        return _Answers(logits=logits, frame=frame)

    def _tried(
        self,
        starts: Mapping[str, Weights],
        teacher: Teacher,
        batches: Sequence[Sequence[Part]],
        kept_out: Sequence[Sequence[Part]],
        clocks: Sequence[Clock],
    ) -> dict[str, float]:
        training, accelerator = self.training, self.accelerator
        sizes = stack_sizes(self.teacher.model.config)
        objective = Objective(
            self.student, [self.stage], teacher=sizes, kind=self.kind, seed=training.seed, examples=len(self.data),
            drop_start=self.teacher.drop_start,
        )  # fmt: skip
        module = accelerator.prepare(objective)
        optimiser = adamw(objective, training.lr, training.weight_decay)
        take = Step(
            module=module, objective=objective, teacher=teacher, accelerator=accelerator,
            optimiser=accelerator.prepare(optimiser), clip=training.clip,
        )  # fmt: skip
        off = training.graph == "off" or why_not(objective, 0, training, accelerator) is not None
        graphs = None if off or isinstance(teacher, LiveTeacher) else Graphs(take)
        found: dict[str, float] = {}
        with bar("try starts", len(starts) * len(batches)) as shown:
            for name, weights in starts.items():
                _begin(objective.student, weights(), optimiser)
                module.train()
                for parts, clock in zip(batches, clocks, strict=True):
                    set_rate(optimiser, learning_rate(training.lr, clock.step, len(clocks), training.warmup))
                    if graphs is not None:
                        graphs(packed(objective, parts[0], clock), clock)
                    else:
                        take([part.to(accelerator.device) for part in parts], clock)
                    shown.advance(note=name)
                module.eval()
                found[name] = self._loss(take, kept_out, clocks[-1])
        return found

    def _loss(self, take: Step, batches: Sequence[Sequence[Part]], clock: Clock) -> float:
        """The mean loss of the held-out batches, over all processes."""
        with torch.no_grad():
            losses = [take.losses(part.to(self.accelerator.device), clock).total for parts in batches for part in parts]
        total: Tensor = self.accelerator.reduce(torch.stack(losses).sum())
        return float(total) / len(batches)


def _with_answers(part: Part, teacher: Teacher) -> Part:
    return replace(part, kept=teacher.read(part.batch.index, 0, {}))


@torch.no_grad()
def _begin(student: PreTrainedModel, weights: Mapping[str, Tensor], optimiser: torch.optim.Optimizer) -> None:
    """Put a start's weights into the student, in place, and forget what the optimiser knows."""
    student.load_state_dict(weights)
    for state in optimiser.state.values():
        for value in state.values():
            value.zero_()
