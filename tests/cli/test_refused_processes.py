"""A refusal in several processes is printed once, by the first process, and is the last thing the launcher says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stillery.cli.refused_in_several import stopped_in_several
from stillery.train.loop import accelerator_for


def test_a_refusal_is_printed_once_and_is_the_launchers_last_word(tmp_path: Path) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    distill = ("-m", "stillery", "distill", "--teacher", "x", "--data", "nowhere.csv", "--layers", "1", "--out", "y")
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, *distill], capture_output=True, text=True, cwd=tmp_path, env=one_thread, timeout=100
    )
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert lines.count("stillery: no such file: nowhere.csv") == 1
    # The launcher's own trace cannot be left out; what it ends with is the line.
    assert lines[-2].strip() == "traceback : stillery: no such file: nowhere.csv" and set(lines[-1]) == {"="}
    assert done.stderr.count("no such file") == 2
    assert not list(tmp_path.iterdir())


def test_why_a_run_stopped_is_printed_rather_than_that_a_process_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def process(launch: str, rank: int, line: str, *, lost: bool) -> bool:
        """Whether a process prints its line; the launcher gets it in any case."""
        file = tmp_path / launch / str(rank) / "error.json"
        file.parent.mkdir(parents=True)
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
        printed = stopped_in_several(line, lost=lost)
        assert json.loads(file.read_text())["message"] == f"stillery: {line}"
        return printed

    assert process("one", 2, "out of memory", lost=False)
    assert not process("one", 0, "another process has ended", lost=True)
    assert process("one", 1, "out of memory too", lost=False)
    assert process("another", 1, "another process has ended", lost=True)
    assert not process("another", 0, "another process has ended", lost=True), "once"
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE")
    assert stopped_in_several("in one process", lost=True)


@pytest.mark.parametrize("name", ["FSDP", "DEEPSPEED"])
def test_a_launcher_that_divides_models_is_refused(command, tiny_teacher, reviews, tmp_path, monkeypatch, name):
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "true")
    asked = ("--data", reviews, "--layers", 2, "--max-steps", 1, "--out", tmp_path / "out")
    done = command("distill", "--teacher", tiny_teacher, *asked)
    assert (done.code, done.err) == (
        2, f"stillery: accelerate launch --use_{name.lower()} (ACCELERATE_USE_{name}) is not supported: models are not "
        "divided over processes, each holds them whole; leave it out, or start with torchrun --nproc-per-node\n"
    )  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_a_launchers_accumulation_does_not_scale_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.nn.Parameter(torch.ones(()))
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    accelerator_for("fp32").backward(weight * 2)
    assert weight.grad == 2
