"""Checkpoints by the clock: as far apart as asked for, and further where writing one takes long."""

from __future__ import annotations

from accelerate import Accelerator

from stillery.train.save_timer import SaveTimer


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_checkpoint_is_due_when_its_time_has_passed_and_costs_a_twentieth_at_most():
    clock = Clock()
    timer = SaveTimer(30.0, Accelerator(cpu=True), now=clock)
    clock.now += 29
    assert not timer.due()
    clock.now += 1
    assert timer.due()
    with timer.saving():
        clock.now += 4
    # Writing took 4 seconds, so the next one is 80 seconds off.
    clock.now += 79
    assert not timer.due()
    clock.now += 1
    assert timer.due()
    with timer.saving():
        clock.now += 0.1
    clock.now += 30
    assert timer.due()


def test_without_seconds_none_is_due():
    clock = Clock()
    timer = SaveTimer(None, Accelerator(cpu=True), now=clock)
    clock.now += 1e6
    assert not timer.due()
