"""A run killed with SIGKILL and resumed ends with the same bits as one that was not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file


def command(teacher: Path, data: Path, out: Path, *more: object) -> list[str]:
    # A narrower student, so that there are projections to restore, and dropout as the teacher has it.
    settings = ["--method", "layer-forward", "--layers", 2, "--width", 16, "--heads", 2, "--epochs", 3]
    settings += ["--batch-size", 4, "--accumulate", 2, "--lr", 1e-3, "--log-every", 1, "--eval-every", 7]
    # Whether the teacher is asked or its store is read makes a difference of rounding, and time decides by itself.
    settings += ["--checkpoint-every", 5, "--patience", 40, "--cache", "on"]
    arguments = ["distill", "--teacher", teacher, "--data", data, "--out", out, *settings, *more]
    return [sys.executable, "-m", "stillery", *map(str, arguments)]


def last_step(out: Path) -> int:
    try:
        lines = (out / "log.jsonl").read_text().splitlines()
        return json.loads(lines[-1])["step"] if lines else 0
    except (FileNotFoundError, json.JSONDecodeError):
        return 0


def kill_after(step: int, arguments: list[str], out: Path) -> None:
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while last_step(out) < step:
        assert process.poll() is None, process.stderr.read().decode()  # type: ignore[union-attr]
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL


def finish(arguments: list[str]) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def undisturbed(tiny_teacher: Path, reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("resume") / "undisturbed"
    finish(command(tiny_teacher, reviews, out))
    return out


@pytest.mark.slow
def test_killed_again_and_again(undisturbed: Path, tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    kill_after(3, command(tiny_teacher, reviews, out), out)  # before the first checkpoint
    assert not (out / "metrics.json").exists()
    for step in (16, 31):
        kill_after(step, command(tiny_teacher, reviews, out, "--resume"), out)
    assert list((out / "checkpoints").glob("step-*"))
    finish(command(tiny_teacher, reviews, out, "--resume"))

    ours, theirs = (load_file(run / "model.safetensors") for run in (out, undisturbed))
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert torch.equal(ours[name], value), name
    logs = [[json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()] for run in (out, undisturbed)]
    for event in [*logs[0], *logs[1]]:
        event.pop("seconds", None)
    assert logs[0] == logs[1], "every step is logged once, with the same numbers"
    assert (out / "predictions.parquet").read_bytes() == (undisturbed / "predictions.parquet").read_bytes()
    assert {path.name for path in out.iterdir()} == {path.name for path in undisturbed.iterdir()}
    assert not (out / "checkpoints").exists()


def test_resuming_a_finished_run_does_nothing(undisturbed: Path, tiny_teacher: Path, reviews: Path) -> None:
    weights = undisturbed / "model.safetensors"
    before = weights.stat().st_mtime_ns
    done = subprocess.run(command(tiny_teacher, reviews, undisturbed, "--resume"), capture_output=True, text=True)
    assert done.returncode == 0
    assert "finished already" in done.stderr
    assert weights.stat().st_mtime_ns == before
