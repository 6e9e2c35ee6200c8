"""Trial of several student initialisations ("starts") for a few steps each, to compare their losses.

All starts are trained on the same batches in the same order with the same seed, and are compared by the loss on
held-out training examples. One model is trained from each start in turn, so that on a GPU a step recorded for the first
start is replayed for the others too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import PreTrainedModel

from stillery.data.tokens.batches import Batch, windows
from stillery.losses import Kind
from stillery.models.family import stack_sizes
from stillery.models.wanted_outputs import Stack, Trace
from stillery.progress import bar
from stillery.recipe import Clock, Stage
from stillery.train.cuda.graph_step import Graphs, packed, why_not
from stillery.train.cuda.memory import free_cached
from stillery.train.cuda.stream import own_stream
from stillery.train.learning_rate import learning_rate
from stillery.train.microbatches import MicroBatch, split_window
from stillery.train.objective import Objective
from stillery.train.optimiser import adamw, set_rate
from stillery.train.settings import Training
from stillery.train.step import Step
from stillery.train.step_plan import Needs, StepPlan
from stillery.train.teacher import LiveTeacher, Teacher
from stillery.train.teacher_cache.contents import CachedArray, frame_of, trace_of
from stillery.train.trainable import Trainable, TrainingData

__all__ = ["HELD_OUT", "LEAST_STEPS", "MOST_STEPS", "SHARE", "Probe", "Weights", "probe_steps"]

SHARE = 0.15
"""The largest cost of the trial as a share of the run's optimiser steps."""

MOST_STEPS, LEAST_STEPS = 48, 12
"""Limits of the number of steps per start: more add little, fewer are inconclusive."""

HELD_OUT = 8
"""Number of held-out batches of training examples on which the starts are compared."""

_ORDER = 0x57A27  # seeds a shuffle that differs from those of all stages

Weights = Callable[[], Mapping[str, Tensor]]
"""Creates the initial weights of a student from one start."""


def probe_steps(total: int, starts: int) -> int:
    """Return the number of trial steps per start within `SHARE` of a run of `total` steps; 0 if too few.

    Costs are in steps of the run: the teacher's one pass over the batches counts as half a start, and a held-out batch
    as a third of a step.

    >>> probe_steps(1336, 4), probe_steps(300, 4), probe_steps(300, 2)
    (41, 0, 14)
    >>> probe_steps(262, 2), probe_steps(263, 2)
    (0, 12)
    """
    steps = int((SHARE * total - HELD_OUT * (starts / 3 + 0.5)) / (starts + 0.5))
    return min(MOST_STEPS, steps) if steps >= LEAST_STEPS else 0


@dataclass(frozen=True, kw_only=True, eq=False)
class _LogitsInMemory:
    """A classifier teacher whose logits on the trial's examples are kept in memory: it runs once for all starts."""

    logits: Mapping[int, Tensor]
    frame: Stack

    def read(self, batch: Batch, needs: Needs) -> dict[CachedArray, Tensor]:
        """The logits of these examples."""
        return {CachedArray("logits"): torch.stack([self.logits[int(place)] for place in batch.index])}

    def outputs(self, plan: StepPlan, micro_batch: MicroBatch, view: str) -> Trace:
        """Return a trace with the logits that were read for a micro-batch."""
        assert micro_batch.cached is not None
        return trace_of(micro_batch.cached, self.frame, micro_batch.batch.teacher_inputs["attention_mask"])


@dataclass(frozen=True, kw_only=True, eq=False)
class Probe:
    """Runs the trial: with the student that is given each start's weights, the data, the losses, the run's settings."""

    student: PreTrainedModel
    teacher: LiveTeacher
    data: Trainable
    kind: Kind
    stage: Stage
    training: Training
    accelerator: Accelerator

    def __call__(self, starts: Mapping[str, Weights], steps: int) -> dict[str, float]:
        """Return the held-out loss of each start after this number of steps."""
        training, accelerator = self.training, self.accelerator
        window = training.batch_size * training.accumulate * accelerator.num_processes
        order = windows(self.data.lengths, seed=training.seed, stage=_ORDER, epoch=0, window=window)
        held = min(HELD_OUT, max(1, len(order) // 4))
        clocks = [Clock(seed=training.seed, step=step, stage_step=step, stage_steps=steps) for step in range(steps)]
        learnt = [order[step % max(len(order) - held, 1)] for step in range(steps)]
        with own_stream(accelerator.device):
            self.teacher.bring(accelerator.device, may_offload=True)
            batches = [self._split(chosen, clock) for chosen, clock in zip(learnt, clocks, strict=True)]
            held_out = [self._split(chosen, clocks[0]) for chosen in order[-held:]]
            teacher = self._teacher([*batches, *held_out])
            if not isinstance(teacher, LiveTeacher):
                batches = [[one.with_cached(teacher.read(one.batch, {})) for one in window] for window in batches]
                held_out = [[one.with_cached(teacher.read(one.batch, {})) for one in window] for window in held_out]
            try:
                return self._tried(starts, teacher, batches, held_out, clocks)
            finally:
                accelerator._optimizers.clear()
                accelerator._models.clear()
                free_cached()

    def _split(self, chosen: np.ndarray, clock: Clock) -> list[MicroBatch]:
        return split_window(self.data, chosen, self.training.batch_size, clock, None, self.accelerator)

    def _teacher(self, batches: Sequence[Sequence[MicroBatch]]) -> Teacher:
        """Return a teacher with its logits in memory; a text generator runs live, because its logits are too large."""
        if not isinstance(self.data, TrainingData):
            return self.teacher
        logits: dict[int, Tensor] = {}
        frame: Stack | None = None
        for one in (one for window in batches for one in window):
            if all(int(place) in logits for place in one.batch.index):
                continue
            there = one.to(self.accelerator.device)
            with self.accelerator.autocast():
                trace = self.teacher(there.batch.teacher_inputs, {}, logits=True)
            frame = frame or frame_of(trace.stack())
            logits.update(zip(one.batch.index.tolist(), trace.logits.cpu(), strict=True))
        assert frame is not None
        return _LogitsInMemory(logits=logits, frame=frame)

    def _tried(
        self,
        starts: Mapping[str, Weights],
        teacher: Teacher,
        batches: Sequence[Sequence[MicroBatch]],
        held_out: Sequence[Sequence[MicroBatch]],
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
                for window, clock in zip(batches, clocks, strict=True):
                    plan = objective.plan(clock)
                    set_rate(optimiser, learning_rate(training.lr, clock.step, len(clocks), training.warmup))
                    if graphs is not None:
                        graphs(packed(plan, window[0]))
                    else:
                        take(plan, [one.to(accelerator.device) for one in window])
                    shown.advance(note=[name])
                module.eval()
                found[name] = self._loss(take, held_out, objective.plan(clocks[-1]))
        return found

    def _loss(self, take: Step, batches: Sequence[Sequence[MicroBatch]], plan: StepPlan) -> float:
        """The mean loss of the held-out batches, over all processes."""
        with torch.no_grad():
            device = self.accelerator.device
            losses = [take.losses(plan, one.to(device)).total for window in batches for one in window]
        total: Tensor = self.accelerator.reduce(torch.stack(losses).sum())
        return float(total) / len(batches)


@torch.no_grad()
def _begin(student: PreTrainedModel, weights: Mapping[str, Tensor], optimiser: torch.optim.Optimizer) -> None:
    """Load a start's weights into the student, in place, and reset the optimiser."""
    student.load_state_dict(weights)
    for state in optimiser.state.values():
        for value in state.values():
            value.zero_()
