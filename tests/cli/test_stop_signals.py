"""Ctrl-C and SIGTERM: a checkpoint at the end of the step, and a line that says how to continue."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from forked import Process, start
from safetensors.torch import load_file

from stillery.jobs import distill
from stillery.stop_signals import StopAfterStep, Terminated, sigterm_raises
from stillery.train import checkpoint
from stillery.train.objective import Objective

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals")

RUN = ("--method", "tinybert", "--layers", 2, "--cache", "off", "--max-length", 16, "--max-steps", 12, "--batch-size",
       8, "--eval-every", 4, "--checkpoint-every", 1000)  # fmt: skip
"""Two stages, of 3 and 9 steps; none of the checkpoints by steps is ever due."""


def signals_at(steps: Sequence[int], number: int) -> Callable[[], None]:
    """Send a signal to this process while it takes these steps, counted from 1."""

    def patch() -> None:
        after, taken = Objective.after_step, [0]

        def sends(self: Objective, *, new_epoch: bool) -> None:
            after(self, new_epoch=new_epoch)
            taken[0] += 1
            if taken[0] in steps:
                os.kill(os.getpid(), number)

        Objective.after_step = sends  # type: ignore[method-assign]

    return patch


@pytest.fixture(scope="module")
def asked(tiny_teacher: Path, reviews: Path) -> tuple[object, ...]:
    return ("distill", "--teacher", tiny_teacher, "--data", reviews, *RUN)


@pytest.fixture(scope="module")
def whole(asked: tuple[object, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("signals")
    assert start(place / "said", *asked, "--out", place / "run").wait() == 0
    return place / "run"


def ends_the_same(out: Path, whole: Path, said: Path) -> None:
    again = start(said, "distill", "--resume", "--out", out)
    assert again.wait() == 0, again.err
    ours, theirs = (load_file(run / "model.safetensors") for run in (out, whole))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in theirs)


def last_line(process: Process) -> str:
    return process.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("number", "code", "words", "step", "kept"),
    [
        (signal.SIGINT, 130, "interrupted", 2, 2),
        (signal.SIGTERM, 143, "stopped by SIGTERM", 10, 10),
        # At the end of a stage no checkpoint is written, so the run stops a step later.
        (signal.SIGTERM, 143, "stopped by SIGTERM", 3, 4),
    ],
)
def test_a_run_stops_with_a_checkpoint(asked, whole, tmp_path, number, code, words, step, kept):
    out = tmp_path / "run"
    stopped = start(tmp_path / "said", *asked, "--out", out, before=signals_at([step], number))
    assert stopped.wait() == code, stopped.err
    assert last_line(stopped) == (
        f"stillery: {words} at step {kept}, which is saved; the run in {out} continues with --resume"
    )
    assert "Traceback" not in stopped.err and checkpoint.read_progress(out).step == kept
    assert not [path for path in out.rglob("*") if ".stillery-" in path.name]
    ends_the_same(out, whole, tmp_path / "again")


def test_a_signal_at_the_last_step_comes_before_scoring(asked, whole, tmp_path):
    out = tmp_path / "run"
    stopped = start(tmp_path / "said", *asked, "--out", out, before=signals_at([12], signal.SIGTERM))
    assert stopped.wait() == 143, stopped.err
    assert last_line(stopped) == f"stillery: stopped by SIGTERM; the run in {out} continues with --resume"
    ends_the_same(out, whole, tmp_path / "again")


def test_sigterm_before_training_is_a_line_too(asked, tmp_path):
    def before() -> None:
        distill.prepare_distill = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)  # type: ignore[assignment]

    stopped = start(tmp_path / "said", *asked, "--out", tmp_path / "run", before=before)
    assert stopped.wait() == 143
    assert stopped.err == f"stillery: stopped by SIGTERM; nothing was written to {tmp_path / 'run'}\n"
    assert not (tmp_path / "run").exists()


def test_a_second_signal_stops_at_once():
    asked = StopAfterStep()
    asked.note(signal.SIGINT, None)
    assert asked.number == signal.SIGINT
    with pytest.raises(KeyboardInterrupt):
        asked.note(signal.SIGINT, None)
    with pytest.raises(Terminated):
        asked.note(signal.SIGTERM, None)


def test_handlers_of_others_are_left_alone():
    def mine(*_: object) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGTERM, mine)
    try:
        with sigterm_raises():
            assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
    with sigterm_raises():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_study_stops_with_a_line(tmp_path):
    """`study` and `shrink` end in the same way; their cells continue from their checkpoints."""

    def before() -> None:
        from stillery.study import run

        run.run_study = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)  # type: ignore[assignment]

    plan = tmp_path / "plan.toml"
    plan.write_text("")
    stopped = start(tmp_path / "said", "study", plan, "--out", tmp_path / "study", before=before)
    assert stopped.wait() == 143
    assert last_line(stopped) == (
        f"stillery: stopped by SIGTERM; the same command continues the study in {tmp_path / 'study'}"
    )
