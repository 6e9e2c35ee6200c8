"""The loss of a distillation method for a batch, for a training loop of one's own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from stillery.api.loop.batches import Reader, StepRows
from stillery.api.loop.chosen import choose, kind_of_answers
from stillery.api.loop.timetable import Timetable, check_times
from stillery.errors import UserError
from stillery.models.family import stack_sizes
from stillery.models.wanted_outputs import Trace
from stillery.recipe import Clock, Match, Recipe, Stateful
from stillery.train.microbatches import MicroBatch
from stillery.train.objective import Objective
from stillery.train.seeds import seed_generators, step_seed
from stillery.train.step_plan import StepPlan, sizes_in
from stillery.train.teacher import LiveTeacher

__all__ = ["DistillationLoss", "Distiller"]


@dataclass(frozen=True, kw_only=True, eq=False)
class DistillationLoss:
    """The loss of a batch, to call `backward` on, and its terms.

    `terms` are detached and unweighted, by name: `hard` is the labels' loss, `soft` that of the teacher's predictions,
    the others are matches of layers. `weights` are their weights in the loss, `stage` is the stage of the method.
    """

    loss: Tensor
    terms: dict[str, Tensor]
    weights: dict[str, float]
    stage: str


class Distiller(nn.Module):
    """Computes the loss of a distillation method for a batch, for a training loop of one's own.

    distiller = Distiller("layer-forward", teacher, student)
    optimizer = torch.optim.AdamW(distiller.parameters(), lr=5e-5)
    for batch in loader:
        distiller(batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    It is one module with the student and the projections of the method, so that an optimiser, clipping, checkpoints and
    `accelerator.prepare` see all that is trained. The teacher is frozen, and no part of it. Every forward pass in
    training mode counts as an optimiser step, unless `accumulate` or `rows` says that several make one.

    Args:
        recipe: a method's name, a `stillery.recipe.Recipe`, or FILE.py:FUNCTION; `layer-forward` by default.
        teacher: a fine-tuned model of transformers, with the student's vocabulary and labels.
        student: the model to train, started as you like.
        method: the same as a name in `recipe`.
        options: of the method, and the switches of `stillery.distill`, such as `pair`, `distance` or `hard_weight`.
        seed: of projections, dropout and random pairings.
        steps: the optimiser steps of the whole training, for methods of two stages and weights that change.
        steps_per_epoch: the optimiser steps of an epoch, for methods that draw layers anew in each.
        accumulate: the forward passes of an optimiser step.
        examples: the number of training examples, for methods that remember them by the `index` in a batch.
    """

    def __init__(
        self,
        recipe: str | Recipe | None = None,
        teacher: PreTrainedModel | None = None,
        student: PreTrainedModel | None = None,
        *,
        method: str | None = None,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        steps: int | None = None,
        steps_per_epoch: int | None = None,
        accumulate: int = 1,
        examples: int = 0,
    ) -> None:
        super().__init__()
        chosen = choose(recipe, method, options, teacher=teacher, student=student, seed=seed)
        assert student is not None
        if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
            raise UserError(f"accumulate is {accumulate!r}: give a whole number of at least 1")
        self.name, self.recipe, self.seed, self.accumulate = chosen.name, chosen.recipe, seed, accumulate
        self._sizes = [stack_sizes(model.config) for model in (student, teacher or student)]
        self.schedule(steps, steps_per_epoch)
        kind = kind_of_answers(student)
        self.objective = Objective(
            student, self.recipe.stages, teacher=None if teacher is None else self._sizes[1], kind=kind, seed=seed,
            examples=examples, drop_start=chosen.drop_start,
        )  # fmt: skip
        self._remembers = any(isinstance(judge, Stateful) for judge in self.objective.judges.values())
        if self._remembers and examples < 1:
            raise UserError(
                f"{self.name} remembers every example: give examples, the number of them, and in each batch 'index', "
                "their places among them"
            )
        # No submodule: neither optimisers nor checkpoints see it.
        self._teacher = None if teacher is None else LiveTeacher(teacher, chosen.drop_start)
        self._reader = Reader(student=student, kind=kind, drop_start=chosen.drop_start, name=self.name)
        # The forward passes of the step so far, and in all.
        self._step, self._seen, self._passes = 0, 0, accumulate
        self.register_state_dict_pre_hook(lambda *_: self._end_whole_step())  # type: ignore[no-untyped-call]
        self.train()

    @property
    def student(self) -> PreTrainedModel:
        """The student; it is saved by its own `save_pretrained`."""
        return self.objective.student

    @property
    def projections(self) -> nn.ModuleDict:
        """What is trained or remembered beside the student: projections, and modules of criteria and transports."""
        names = ("projections", "flows", "judges")
        return nn.ModuleDict({name: getattr(self.objective, name) for name in names})

    def schedule(self, steps: int | None, steps_per_epoch: int | None) -> None:
        """Set the optimiser steps of the whole training and of an epoch; raise UserError if the recipe needs more."""

        def depths(match: Match) -> tuple[int, int]:
            ours, theirs = (sizes_in(sizes, match.stack).layers for sizes in self._sizes)
            return ours, theirs

        check_times(self.recipe.stages, depths, steps, steps_per_epoch)
        self._timetable = Timetable(self.recipe.stages, seed=self.seed, steps=steps, per_epoch=steps_per_epoch)

    @property
    def clock(self) -> Clock:
        """The seed, stage, epoch and step of the next forward pass."""
        return self._timetable.clock(self.step)

    @property
    def step(self) -> int:
        """The number of optimiser steps before the next forward pass; may be set, to continue from there."""
        self._end_whole_step()
        return self._step

    @step.setter
    def step(self, step: int) -> None:
        self._step, self._seen = step, 0

    def advance(self) -> None:
        """End the optimiser step; to be called after it where the number of its forward passes varies."""
        if self._seen:
            self._end_step()

    def rows(self, batches: Sequence[Mapping[str, Any]]) -> StepRows:
        """Return the rows of an optimiser step of these batches and those of other processes.

        Given to each forward pass of the step, they make the losses of its batches add up to that of one large batch.
        """
        clock = self.clock
        plan = self.objective.plan(clock)
        total = self._reader.rows(batches, plan.stage, clock)
        processes, device = _processes(), self.student.device
        if processes > 1:
            names = sorted(total)
            summed = torch.tensor([total[name] for name in names], device=device)
            torch.distributed.all_reduce(summed)
            total.update({name: count - total[name] for name, count in zip(names, summed.tolist(), strict=True)})
        step = StepRows(rows=total, batches=len(batches), processes=processes)
        if not plan.counted or processes * len(batches) == 1:
            return step
        return StepRows(rows=total, batches=len(batches), processes=processes, counts=self._counts(plan, batches, step))

    def forward(self, batch: Mapping[str, Any], rows: StepRows | None = None) -> DistillationLoss:
        """Return the loss of a batch: a dictionary of tensors, as a tokenizer or DataLoader gives it, with `labels`.

        With the `rows` of its optimiser step it is the part of this batch in the step's loss.
        """
        clock = self.clock
        number, plan = self._seen, self.objective.plan(clock)
        counting = self.training and torch.is_grad_enabled()
        self._check_index(batch)
        micro_batch = self._reader.micro_batch(batch, plan.stage, clock, number, rows)
        with self._own_dropout(clock, number):
            counts = None if rows is None else rows.counts
            losses = self.objective(plan, micro_batch, self._teacher_outputs(plan, micro_batch), counts)
        if counting:
            self._seen += 1
            self._passes = self.accumulate if rows is None else rows.batches
        return DistillationLoss(
            # Processes average their gradients, but the parts of a step's loss have to be summed.
            loss=losses.total * (1 if rows is None else rows.processes),
            terms={name: term.detach() for name, term in losses.terms.items()},
            weights=losses.weights,
            stage=plan.stage.name,
        )

    def get_extra_state(self) -> Tensor:
        """The step, for `state_dict`; a tensor, which every format of checkpoints can hold."""
        return torch.tensor(self._step)

    def set_extra_state(self, state: Tensor) -> None:
        """Continue at the step of a checkpoint."""
        self.step = int(state)

    def _teacher_outputs(self, plan: StepPlan, micro_batch: MicroBatch) -> dict[str, Trace]:
        if self._teacher is None or not plan.teacher:
            return {}
        device = self.student.device
        if self._teacher.model.device != device:
            self._teacher.bring(device, may_offload=False)
        self._teacher.model.eval()
        return {view: self._teacher.outputs(plan, micro_batch, view) for view in plan.teacher}

    def _counts(self, plan: StepPlan, batches: Sequence[Mapping[str, Any]], step: StepRows) -> dict[str, Tensor]:
        """Sum what distances count themselves over the batches of a step, by a forward pass without gradients."""
        totals: dict[str, Tensor] = {}
        for number, batch in enumerate(batches):
            micro_batch = self._reader.micro_batch(batch, plan.stage, plan.clock, number, step)
            with self._own_dropout(plan.clock, number):
                found = self.objective.counts_of(plan, micro_batch, self._teacher_outputs(plan, micro_batch))
            for name, counts in found.items():
                totals[name] = totals[name] + counts if name in totals else counts
        for counts in totals.values():
            if step.processes > 1:
                torch.distributed.all_reduce(counts)
        return totals

    @contextlib.contextmanager
    def _own_dropout(self, clock: Clock, number: int) -> Iterator[None]:
        """Draw dropout as a function of the clock, and leave the random state of the loop as it is."""
        device = self.student.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            rank = torch.distributed.get_rank() if _processes() > 1 else 0
            seed_generators(step_seed(clock.seed, clock.step, number, rank), device)
            yield

    def _check_index(self, batch: Mapping[str, Any]) -> None:
        if self._remembers and isinstance(batch, Mapping) and "index" not in batch:
            raise UserError(
                f"{self.name} remembers every example: give in each batch 'index', their places in the data"
            )

    def _end_whole_step(self) -> None:
        if self._seen >= self._passes:
            self._end_step()

    def _end_step(self) -> None:
        self.objective.after_step(new_epoch=self._timetable.ends_epoch(self._step))
        self._step, self._seen = self._step + 1, 0


def _processes() -> int:
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if there else 1
