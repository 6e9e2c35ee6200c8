"""`stillery distill --cache`: the teacher runs once, and the student is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from csv_files import write_csv
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
    training = [json.loads((tmp_path / name / "metrics.json").read_text())["training"] for name in ("live", "first")]
    assert "teacher_store" not in training[0]
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
    found = json.loads((tmp_path / "auto" / "metrics.json").read_text())
    (choice,) = found["training"]["teacher_store"]
    assert choice["why"] in done.err and "s live" in choice["why"] and not choice["used"]
    assert 0 < found["training"]["teacher_store_seconds"] < found["cost"]["train_seconds"]


def test_a_teacher_that_was_put_away_is_asked_for_its_answers(
    command, tiny_teacher: Path, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path / "cache"))
    raw = write_csv(tmp_path / "raw.csv", ("text",), [(text,) for text in texts])
    found = []
    for cache in ("on", "off"):
        done = command("distill", "--teacher", tiny_teacher, "--data", raw, "--unlabelled", "--layers", 2,
                       "--epochs", 2, "--lr", 1e-3, "--cache", cache, "--out", tmp_path / cache)  # fmt: skip
        assert done.code == 0, done.err
        found.append(json.loads((tmp_path / cache / "metrics.json").read_text()))
    assert found[0]["metrics"] == found[1]["metrics"] and found[0]["metrics"].keys() == {"agreement"}
    assert found[0]["training"]["dev_last"].keys() == {"agreement"}
    assert [one["used"] for one in found[0]["training"]["teacher_store"]] == [True]


@pytest.mark.slow
def test_two_processes_go_on_where_the_store_fails(tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    """The main process finds that the folder cannot be made; the other one hears of it and does not wait for it."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "teacher").write_text("in the way")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29741"]
    arguments = ["distill", "--teacher", tiny_teacher, "--data", reviews, "--out", tmp_path / "out", "--layers", 2,
                 "--max-steps", 2, "--batch-size", 8, "--cache", "on"]  # fmt: skip
    done = subprocess.run(
        [*launcher, "-m", "stillery", *map(str, arguments)], capture_output=True, text=True, timeout=300,
        env=os.environ | {"ACCELERATE_USE_CPU": "true", "STILLERY_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"teacher store: off, {tmp_path / 'cache'} cannot be used (File exists)" in done.stderr
    (tmp_path / "cache" / "teacher").unlink()
    done = subprocess.run(
        [*launcher, "-m", "stillery", *map(str, arguments[:6]), str(tmp_path / "again"), *map(str, arguments[7:])],
        capture_output=True, text=True, timeout=300,
        env=os.environ | {"ACCELERATE_USE_CPU": "true", "STILLERY_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    training = json.loads((tmp_path / "again" / "metrics.json").read_text())["training"]
    assert [one["used"] for one in training["teacher_store"]] == [True]


def test_what_is_no_choice_is_refused(distill) -> None:
    done = distill("wrong", "--cache", "sometimes", "--cache-limit", 0)
    assert done.code == 2
    assert "--cache is 'sometimes': choose from auto, on, off" in done.err
    assert "--cache-limit is 0.0: it must be more than 0" in done.err
