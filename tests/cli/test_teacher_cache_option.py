"""`stillery distill --cache`: the teacher runs once, and the student is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from csv_files import write_csv
from safetensors.torch import load_file

from stillery.data.cache.locks import Turn
from stillery.data.tasks.load_task import load_task
from stillery.train import checkpoint
from stillery.train.teacher_cache import stages as store_use


@pytest.fixture
def distill(command, tiny_teacher: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path / "cache"))

    def run(name: str, *more: object):
        settings = [
            "--layers",
            2,
            "--epochs",
            2,
            "--batch-size",
            16,
            "--lr",
            1e-3,
            "--keep",
            "last",
            "--verbose",
            *more,
        ]
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
    assert "teacher cache: on" in first.err and "to be filled" in first.err
    assert "found whole" in second.err and "fill the teacher cache" not in second.err
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("live", "first"))
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, atol=1e-5, rtol=0, msg=name)
    assert 'cache = "on"' in (tmp_path / "first" / "run.toml").read_text()
    listed = command("cache", "list").out
    assert "logits, bert teacher, 128 examples" in listed and "first tokens of all layers, bert teacher" in listed


def test_auto_is_the_default_and_says_what_it_decided(distill, tmp_path: Path) -> None:
    done = distill("auto", "--method", "kd")
    assert done.code == 0 and "teacher cache: off" in done.err and "s live" in done.err
    assert not list((tmp_path / "cache").glob("teacher/*"))
    found = json.loads((tmp_path / "auto" / "metrics.json").read_text())
    (choice,) = found["training"]["teacher_store"]
    assert choice["why"] in done.err and "s live" in choice["why"] and not choice["used"]
    assert 0 < found["training"]["teacher_store_seconds"] < found["cost"]["train_seconds"]


@pytest.mark.parametrize(("measured", "later", "stages"), [(100.0, 0.0, [1]), (0.0, 100.0, [])])
def test_what_auto_decided_is_in_the_run_file_and_a_repeat_measures_nothing(
    distill, command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: float, later: float, stages: list[int]
) -> None:
    """The teacher's seconds for an example are set, and would decide otherwise when the run is repeated."""

    def takes(seconds: float) -> None:
        monkeypatch.setattr(store_use, "teacher_seconds", lambda *given: seconds)

    def bits(name: str) -> bytes:
        return (tmp_path / name / "model.safetensors").read_bytes()

    def used(name: str) -> list[bool]:
        training = json.loads((tmp_path / name / "metrics.json").read_text())["training"]
        return [one["used"] for one in training["teacher_store"]]

    takes(measured)
    done = distill("first", "--method", "pkd")
    assert done.code == 0, done.err
    file = tmp_path / "first" / "run.toml"
    values = tomllib.loads(file.read_text())
    assert (values["cache"], values["stored_stages"]) == ("auto", stages) and used("first") == [bool(stages)]
    card = (tmp_path / "first" / "README.md").read_text()
    assert tomllib.loads(card.split("```toml\n")[1].split("```")[0])["stored_stages"] == stages
    takes(later)
    again = command("distill", "--config", file, "--verbose", "--out", tmp_path / "again")
    assert again.code == 0, again.err
    assert used("again") == used("first") and bits("again") == bits("first") and "s live" not in again.err
    assert (tmp_path / "again" / "run.toml").read_bytes() == file.read_bytes()
    if not stages:
        assert "teacher cache: off, as the run file says" in again.err
    # StepLosses beside the file, what it was decided from is another, and it is decided anew.
    other = command("distill", "--config", file, "--epochs", 3, "--out", tmp_path / "other")
    assert other.code == 0 and used("other") == [not stages], other.err


def test_a_run_that_goes_on_keeps_what_auto_decided(distill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_use, "teacher_seconds", lambda *given: 100.0)
    whole, asked = tmp_path / "whole" / "model.safetensors", ("--method", "pkd", "--checkpoint-every", 3)
    assert distill("whole", *asked).code == 0

    def interrupted(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    for function, seconds in (("save", 0.0), ("save_begun", 100.0)):
        with monkeypatch.context() as patched:
            patched.setattr(checkpoint, function, interrupted)
            assert distill(function, *asked).code == 130
        monkeypatch.setattr(store_use, "teacher_seconds", lambda *given, now=seconds: now)
        done = distill(function, *asked, "--resume")
        assert done.code == 0, done.err
        assert tomllib.loads((tmp_path / function / "run.toml").read_text())["stored_stages"] == [1]
        assert (tmp_path / function / "model.safetensors").read_bytes() == whole.read_bytes()
        monkeypatch.setattr(store_use, "teacher_seconds", lambda *given: 100.0)


def test_stages_that_are_none_are_refused(distill, command, tmp_path: Path) -> None:
    assert distill("first", "--method", "kd", "--max-steps", 1, "--cache", "on").code == 0
    written = (tmp_path / "first" / "run.toml").read_text()
    assert tomllib.loads(written)["stored_stages"] == [1]
    for stages, said in (("[2]", "names stage 2, and the run has 1"), ('"1"', "give a list of stage numbers from 1")):
        (tmp_path / "first" / "own.toml").write_text(
            written.replace("stored_stages = [\n    1,\n]", f"stored_stages = {stages}")
        )
        done = command("distill", "--config", tmp_path / "first" / "own.toml", "--out", tmp_path / "other")
        assert done.code == 2 and said in done.err and not (tmp_path / "other").exists()


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


def test_a_run_that_need_not_wait_is_one_with_a_live_teacher(distill, tmp_path: Path, monkeypatch) -> None:
    """Another run stands still with the logits half filled."""
    monkeypatch.setenv("STILLERY_CACHE_WAIT", "0.5")
    assert distill("first", "--method", "kd", "--cache", "on").code == 0
    (logits,) = (tmp_path / "cache" / "teacher").glob("*/blocks.txt")
    logits.unlink()
    turn = Turn(logits.parent, "runs/other")
    assert turn.take()
    live, alone = (
        distill(name, "--method", "kd", "--cache", cache) for name, cache in (("live", "off"), ("alone", "on"))
    )
    assert (live.code, alone.code) == (0, 0), live.err + alone.err
    assert f"teacher cache: off, for 0.5 s nothing was done by process {os.getpid()} on " in alone.err
    assert "at logits; the teacher runs live" in alone.err
    logs = [(tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("live", "alone")]
    losses = [[json.loads(line).get("terms") for line in log] for log in logs]
    assert losses[0] == losses[1] and losses[0][0].keys() == {"hard", "soft"}
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("live", "alone"))
    assert all(torch.equal(other[name], value) for name, value in one.items())
    (choice,) = json.loads((tmp_path / "alone" / "metrics.json").read_text())["training"]["teacher_store"]
    assert not choice["used"] and "(runs/other, since 20" in choice["why"]
    turn.let_go()
    assert "teacher cache: on" in distill("again", "--method", "kd", "--cache", "on").err


@pytest.mark.slow
def test_runs_of_many_methods_end_that_share_a_store(tiny_teacher: Path, tmp_path: Path) -> None:
    """Seven methods, one of them twice, in processes of their own; `pkd` in two that train together."""
    sentences = load_task("rotten-tomatoes").train
    # The package sorts by label, so rows are taken from all over it.
    rows = [
        (sentences["text"][row].as_py(), ("negative", "positive")[sentences.labels[row]]) for row in range(0, 6600, 3)
    ]
    data = write_csv(tmp_path / "reviews.csv", ("text", "label"), rows)
    names = ["kd", "pkd", "rail-kd", "layer-forward", "layer-reverse", "rail-kd-concat", "tinybert", "layer-forward"]
    runs = []
    for number, name in enumerate(names):
        launcher = ["torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29743", "-m"]
        arguments = ["distill", "--teacher", tiny_teacher, "--data", data, "--out", tmp_path / str(number), "--layers",
                     2, "--method", name, "--max-steps", 2, "--batch-size", 8, "--cache", "on"]  # fmt: skip
        runs.append(subprocess.Popen(
            [sys.executable, "-m", *(launcher if name == "pkd" else []), "stillery", *map(str, arguments)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"ACCELERATE_USE_CPU": "true", "STILLERY_CACHE": str(tmp_path / "cache")},
        ))  # fmt: skip
    said = [run.communicate(timeout=500)[1] for run in runs]
    for number, run in enumerate(runs):
        assert run.returncode == 0, said[number]
        training = json.loads((tmp_path / str(number) / "metrics.json").read_text())["training"]
        assert [one["used"] for one in training["teacher_store"]] == [True], said[number]


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
    assert f"teacher cache: off, {tmp_path / 'cache'} cannot be used (File exists)" in done.stderr
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
