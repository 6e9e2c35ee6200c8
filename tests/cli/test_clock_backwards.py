"""A clock that goes backwards changes nothing: what a run decides by time, it decides by one that only rises."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stillery.study.claims import Claims, Pace
from stillery.train.objective import Objective

RUN = ("--method", "pkd", "--layers", 2, "--max-length", 16, "--max-steps", 8, "--batch-size", 8, "--cache", "on",
       "--checkpoint-seconds", 0.01)  # fmt: skip


@pytest.fixture
def backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour back with every look at the clock."""
    hours = itertools.count()
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000.0 - 3600 * next(hours))


def test_a_run_is_stopped_and_continues(command, tiny_teacher: Path, reviews: Path, tmp_path: Path, request) -> None:
    asked = ("distill", "--teacher", tiny_teacher, "--data", reviews, *RUN)
    whole, out = tmp_path / "whole", tmp_path / "run"
    assert command(*asked, "--out", whole).code == 0
    request.getfixturevalue("backwards")
    after, taken = Objective.after_step, [0]

    def ends(self: Objective, *, new_epoch: bool) -> None:
        after(self, new_epoch=new_epoch)
        taken[0] += 1
        if taken[0] == 5:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Objective, "after_step", ends)
        assert command(*asked, "--out", out).code == 130
    assert list((out / "checkpoints").glob("step-*")), "checkpoints by seconds are written all the same"
    done = command("distill", "--resume", "--out", out)
    assert done.code == 0, done.err
    ours, theirs = (load_file(run / "model.safetensors") for run in (out, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.usefixtures("backwards")
def test_claims_of_workers_that_live_stay_theirs(tmp_path: Path) -> None:
    pace = Pace(beat=0.01, dead=30)
    with Claims(tmp_path, pace=pace) as one, Claims(tmp_path, pace=pace) as other:
        assert one.take("cell")
        for _ in range(5):
            assert not other.take("cell")
            time.sleep(0.02)
        one.release("cell")
        assert other.take("cell")
