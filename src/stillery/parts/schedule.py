"""Schedules of loss weights: functions of the clock."""

from __future__ import annotations

from stillery.recipe import Clock

__all__ = ["epoch_ramp", "ramp"]


def ramp(clock: Clock, *, weight: float, steps: int | None = None) -> float:
    """A linear ramp from 0 to `weight` over `steps` of the stage (by default all), then constant: w min(t / T, 1).

    CR-ILD prints max(t / T, 1), which contradicts its text; min is meant.
    """
    length = steps or clock.stage_steps
    return weight * min(clock.stage_step / max(length, 1), 1.0)


def epoch_ramp(clock: Clock, *, weight: float) -> float:
    """The ramp of the released CR-ILD code: weight * epoch / epochs of the stage; it never reaches `weight`."""
    return weight * clock.epoch / max(clock.stage_epochs, 1)
