"""The schedule of a run's stages: the steps, data and teacher of each, and the clock at every step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stillery.recipe import Clock, Stage
from stillery.train.learning_rate import stage_lengths
from stillery.train.on_policy import OnPolicy
from stillery.train.teacher import LiveTeacher
from stillery.train.trainable import Trainable

__all__ = ["Sources", "StageSpan", "lengths_of", "spans_of"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Sources:
    """The training data and teachers of a run.

    Stages may use the `supplementary` data and teacher instead. With `on_policy` the student generates the targets of
    some steps.
    """

    data: Trainable
    teacher: LiveTeacher | None
    supplementary: Trainable | None = None
    supplementary_teacher: LiveTeacher | None = None
    on_policy: OnPolicy | None = None

    @property
    def teachers(self) -> list[LiveTeacher]:
        """All teachers that are present."""
        return [one for one in (self.teacher, self.supplementary_teacher) if one is not None]

    def data_of(self, stage: Stage) -> Trainable | None:
        """The data of a stage."""
        return self.supplementary if stage.data == "supplementary" else self.data

    def teacher_of(self, stage: Stage) -> LiveTeacher | None:
        """The teacher of a stage."""
        return self.supplementary_teacher if stage.teacher == "supplementary" else self.teacher


@dataclass(frozen=True, kw_only=True, eq=False)
class StageSpan:
    """The steps of a stage: the first of them in the run, how many, and how many make an epoch over its data.

    A step takes a `window` of examples.
    """

    stage: int
    start: int
    length: int
    window: int
    data: Trainable
    teacher: LiveTeacher | None
    seed: int

    @property
    def per_epoch(self) -> int:
        """Steps of an epoch."""
        return math.ceil(len(self.data) / self.window)

    @property
    def end(self) -> int:
        """The step of the run after the stage's last."""
        return self.start + self.length

    def examples_after(self, step: int) -> int:
        """The number of examples that the stage processes from this step of the run on."""
        return (self.end - max(step, self.start)) * self.window

    def epoch_clocks(self) -> list[Clock]:
        """The clock at the first step of each epoch."""
        return [self.clock(step) for step in range(self.start, self.end, self.per_epoch)]

    def clock(self, step: int) -> Clock:
        """The clock of a step of the run that is in the stage."""
        return Clock(
            seed=self.seed,
            stage=self.stage,
            epoch=(step - self.start) // self.per_epoch,
            step=step,
            stage_step=step - self.start,
            stage_steps=self.length,
            stage_epochs=math.ceil(self.length / self.per_epoch),
        )


def lengths_of(stages: Sequence[Stage], steps: int) -> list[int]:
    """The steps of each stage of a run."""
    return stage_lengths(steps, [stage.share for stage in stages], [stage.least_steps for stage in stages])


def spans_of(
    stages: Sequence[Stage], sources: Sources, lengths: Sequence[int], *, window: int, seed: int, step: int
) -> list[StageSpan]:
    """The stages that are unfinished at this step of the run."""
    spans, start = [], 0
    for index, (stage, length) in enumerate(zip(stages, lengths, strict=True)):
        if step < start + length:
            data = sources.data_of(stage)
            assert data is not None
            spans.append(
                StageSpan(
                    stage=index, start=start, length=length, window=window, data=data,
                    teacher=sources.teacher_of(stage), seed=seed,
                )
            )  # fmt: skip
        start += length
    return spans
