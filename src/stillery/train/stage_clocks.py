"""What is left of a run's stages: who teaches each on what, and the clock at every one of its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stillery.recipe import Clock, Stage
from stillery.train.data import Trainable
from stillery.train.objective import Objective
from stillery.train.schedule import stage_lengths
from stillery.train.teacher import LiveTeacher

__all__ = ["Lesson", "clock_at", "lengths_of", "lessons_of"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Lesson:
    """What is left of a stage: who teaches it on what, a clock of each of its epochs, how many examples it will see."""

    stage: int
    teacher: LiveTeacher | None
    data: Trainable
    clocks: Sequence[Clock]
    examples: int


def lengths_of(stages: Sequence[Stage], steps: int) -> list[int]:
    """The steps of each stage of a run."""
    return stage_lengths(steps, [stage.share for stage in stages], [stage.least_steps for stage in stages])


def lessons_of(
    objective: Objective,
    sources: Sequence[Trainable | None],
    teachers: Mapping[str, LiveTeacher | None],
    lengths: Sequence[int],
    window: int,
    seed: int,
    step: int,
) -> list[Lesson]:
    """What is left of each stage after a step of the run."""
    lessons, start = [], 0
    for index, (stage, source, length) in enumerate(zip(objective.stages, sources, lengths, strict=True)):
        if step < start + length:
            assert source is not None
            per_epoch = math.ceil(len(source) / window)
            clocks = [
                clock_at(seed, index, start, length, per_epoch, at) for at in range(start, start + length, per_epoch)
            ]
            left = start + length - max(step, start)
            teacher = teachers[stage.teacher]
            lessons.append(Lesson(stage=index, teacher=teacher, data=source, clocks=clocks, examples=left * window))
        start += length
    return lessons


def clock_at(seed: int, stage: int, start: int, length: int, per_epoch: int, step: int) -> Clock:
    """The clock of a step of a stage that begins at `start`."""
    return Clock(
        seed=seed,
        stage=stage,
        epoch=(step - start) // per_epoch,
        step=step,
        stage_step=step - start,
        stage_steps=length,
        stage_epochs=math.ceil(length / per_epoch),
    )
