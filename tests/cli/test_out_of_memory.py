"""A command that runs out of memory ends with a line that names what to change, and the run continues with that."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from stillery.jobs import predict
from stillery.train.objective import Objective

RUN = ("--method", "kd", "--layers", 2, "--max-length", 16, "--max-steps", 6, "--batch-size", 8,
       "--checkpoint-every", 2)  # fmt: skip


def on_a_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of ...")


@pytest.fixture
def asked(tiny_teacher: Path, reviews: Path) -> tuple[object, ...]:
    return ("distill", "--teacher", tiny_teacher, "--data", reviews, *RUN)


@pytest.mark.parametrize(
    ("allocate", "lacking"),
    [(lambda: torch.empty(1 << 50), "memory"), (lambda: np.ones(1 << 57), "memory"), (on_a_gpu, "GPU memory")],
    ids=["torch", "numpy", "cuda"],
)
def test_a_run_names_what_needs_less_memory(command, asked, tmp_path, monkeypatch, allocate, lacking):
    out, after, taken = tmp_path / "run", Objective.after_step, [0]

    def then_allocate(self: Objective, *, new_epoch: bool) -> None:
        after(self, new_epoch=new_epoch)
        taken[0] += 1
        if taken[0] == 4:
            allocate()

    with monkeypatch.context() as patch:
        patch.setattr(Objective, "after_step", then_allocate)
        done = command(*asked, "--cache", "off" if lacking == "memory" else "on", "--out", out)
    cache = "" if lacking == "memory" else " or --cache-dtype fp16"
    assert done.code == 1 and "Traceback" not in done.err
    assert done.err.splitlines()[-1] == (
        f"stillery: out of {lacking} in {out}: continue with --resume --batch-size 4 --accumulate 2, which takes "
        "steps of as many examples; or start again with --overwrite and a --max-length below "
        f"16{cache}, or a smaller model"
    )
    done = command("distill", "--out", out, "--resume", "--batch-size", 4, "--accumulate", 2)
    assert done.code == 0, done.err
    assert json.loads((out / "metrics.json").read_text())["training"]["steps"] == 6


def test_other_commands_name_what_they_have(command, tiny_teacher, reviews, tmp_path, monkeypatch):
    def fails(error: Exception) -> Callable[..., None]:
        def run(*_: object, **__: object) -> None:
            raise error

        return run

    asked = ("predict", tiny_teacher, "--data", reviews, "--out", tmp_path / "out.csv")
    monkeypatch.setattr(predict, "run_predict", fails(MemoryError()))
    done = command(*asked)
    assert (done.code, done.err) == (
        1, "stillery: out of memory: give a smaller --batch-size or --max-length, or take a smaller model\n"
    )  # fmt: skip
    monkeypatch.setattr(predict, "run_predict", fails(RuntimeError("of another kind")))
    with pytest.raises(RuntimeError, match="of another kind"):
        command(*asked)
