"""The clock of a training loop of one's own: the stage, epoch and step that an optimiser step belongs to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from stillery.errors import ErrorList
from stillery.recipe import Clock, Match, Stage, Stateful
from stillery.similarity_pairing import asks
from stillery.train.stage_clocks import lengths_of

__all__ = ["Timetable", "check_times"]

_SOME_EPOCHS = range(1, 6)
"""Epochs in which a pairing that is drawn anew is bound to differ from that of the first."""


class Timetable:
    """Places every optimiser step in its stage and epoch, as `stillery distill` does for a run of as many steps.

    `steps` are the optimiser steps of all stages together, `per_epoch` those of an epoch. A recipe of one stage that
    depends on neither needs neither. Steps past the last belong to the last stage.
    """

    def __init__(self, stages: Sequence[Stage], *, seed: int, steps: int | None, per_epoch: int | None) -> None:
        self.stages, self.seed, self.per_epoch = tuple(stages), seed, per_epoch
        self.lengths = [steps or 1] if len(self.stages) == 1 else lengths_of(self.stages, steps or 1)
        self._starts = [0, *accumulate(self.lengths)][:-1]

    def clock(self, step: int) -> Clock:
        """Return the clock at an optimiser step, counted from 0."""
        stage = max(index for index, start in enumerate(self._starts) if start <= step)
        within, length = step - self._starts[stage], self.lengths[stage]
        return Clock(
            seed=self.seed,
            stage=stage,
            epoch=0 if self.per_epoch is None else within // self.per_epoch,
            step=step,
            stage_step=within,
            stage_steps=length,
            stage_epochs=1 if self.per_epoch is None else math.ceil(length / self.per_epoch),
        )

    def ends_epoch(self, step: int) -> bool:
        """Return whether a step is the last of an epoch of its stage."""
        return self.per_epoch is not None and (self.clock(step).stage_step + 1) % self.per_epoch == 0


def check_times(
    stages: Sequence[Stage], depths: Callable[[Match], tuple[int, int]], steps: int | None, per_epoch: int | None
) -> None:
    """Raise UserError for a recipe that needs to know the steps of the run, or of an epoch, and is not told.

    `depths` gives the numbers of student and teacher layers of a match.
    """
    errors = ErrorList()
    for name, value in (("steps", steps), ("steps_per_epoch", per_epoch)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            errors.add(f"{name} is {value!r}: give a whole number of at least 1")
    errors.raise_any()
    if steps is None and len(stages) > 1:
        names = ", ".join(stage.name for stage in stages)
        errors.add(f"the recipe has {len(stages)} stages ({names}): give steps, the optimiser steps of all of them")
    if steps is not None and steps < len(stages):
        errors.add(f"{steps} steps in all are too few for {len(stages)} stages; give more")
    for match in (match for stage in stages for match in stage.matches):
        by_step, by_epoch = _depends(match, depths(match))
        if by_step and steps is None:
            errors.add(f"match {match.name}: its weight changes over the run: give steps, its optimiser steps")
        if by_epoch and per_epoch is None:
            errors.add(
                f"match {match.name}: it changes from epoch to epoch: give steps_per_epoch, the optimiser steps of one"
            )
    errors.raise_any()


def _depends(match: Match, depths: tuple[int, int]) -> tuple[bool, bool]:
    """Return whether a match depends on the steps of its stage, and on the epoch; found by trying."""
    early, late = (Clock(stage_step=5, stage_steps=steps, stage_epochs=8) for steps in (10, 1000))
    epochs = [replace(early, epoch=epoch) for epoch in _SOME_EPOCHS]
    weights = [match.weight_at(clock) for clock in (early, late, *epochs)]
    by_epoch = any(weight != weights[0] for weight in weights[2:])
    if not asks(match):
        pairs = [list(match.pairs(*depths, clock)) for clock in (early, *epochs)]
        by_epoch = by_epoch or any(one != pairs[0] for one in pairs)
    # The weights of a transport may start anew in every epoch.
    flows = match.flow is not None and isinstance(match.flow(*depths), Stateful)
    return len(set(weights)) > 1, by_epoch or flows
