"""`stillery distill --cache`: the teacher runs once, and the student is the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file


@pytest.fixture
def distill(command, tiny_teacher: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path / "cache"))

    def run(name: str, *more: object):
        settings = ["--layers", 2, "--epochs", 2, "--batch-size", 16, "--lr", 1e-3, "--keep", "last", *more]
        return command("distill", "--teacher", tiny_teacher, "--data", reviews, "--out", tmp_path / name, *settings)

    return run


def test_a_student_of_the_store_is_that_of_the_teacher(distill, command, tmp_path: Path) -> None:
    live = distill("live", "--method", "pkd", "--cache", "off")
    first = distill("first", "--method", "pkd", "--cache", "on")
    second = distill("second", "--method", "pkd", "--cache", "on", "--temperature", 20)
    assert (live.code, first.code, second.code) == (0, 0, 0), live.err + first.err + second.err
    assert "teacher store" not in live.err
    assert "teacher store: on" in first.err and "to be filled" in first.err
    assert "found whole" in second.err and "fill the teacher store" not in second.err
    one, other = (load_file(tmp_path / name / "student" / "model.safetensors") for name in ("live", "first"))
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, atol=1e-5, rtol=0, msg=name)
    assert 'cache = "on"' in (tmp_path / "first" / "run.toml").read_text()
    listed = command("cache", "list").out
    assert "logits, bert teacher, 128 examples" in listed and "first tokens of all layers, bert teacher" in listed


def test_auto_is_the_default_and_says_what_it_decided(distill, tmp_path: Path) -> None:
    done = distill("auto", "--method", "kd")
    assert done.code == 0 and "teacher store: off" in done.err and "s live" in done.err
    assert not list((tmp_path / "cache").glob("teacher/*"))


def test_what_is_no_choice_is_refused(distill) -> None:
    done = distill("wrong", "--cache", "sometimes", "--cache-limit", 0)
    assert done.code == 2
    assert "--cache is 'sometimes': choose from auto, on, off" in done.err
    assert "--cache-limit is 0.0: it must be more than 0" in done.err
