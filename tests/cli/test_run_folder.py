"""The model lies at the top of its run folder, whole or not at all; in `student/`, as before, it is read too."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
from old_runs import old_layout

from stillery import atomic

SMALL = ("--max-steps", 2, "--batch-size", 8, "--max-length", 16)


@pytest.fixture
def small(command, tiny_teacher, reviews, tmp_path) -> Path:
    """A run folder as it is made now."""
    out = tmp_path / "small"
    done = command("distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 2, *SMALL, "--out", out)
    assert done.code == 0, done.err
    return out


def files(out: Path) -> dict[str, bytes]:
    """What must be the same in every folder of one run: all but what measures time."""
    same = {path.name: path.read_bytes() for path in out.iterdir() if path.name not in ("metrics.json", "log.jsonl")}
    assert {"config.json", "model.safetensors", "run.toml", "predictions.parquet"} <= same.keys()
    return same


def test_a_run_folder_of_before_is_read_everywhere(command, small, reviews, tmp_path):
    scored = ("--data", reviews, "--split", "test", "--json")
    now = command("evaluate", small, *scored)
    missing = command("evaluate", small / "student", *scored)
    assert missing.code == 2 and missing.err == (
        f"stillery: {small / 'student'}: no such folder; the model of this run lies in {small} itself\n"
    )
    assert command("predict", small, "--data", reviews, "--out", tmp_path / "now.csv").code == 0
    old_layout(small)
    for model in (small, small / "student"):
        # The length comes from the run file: nothing else says 16.
        before = command("evaluate", model, *scored)
        assert before.code == 0 and before.json == now.json and "longer than 16 tokens" in before.err
        whole = command("evaluate", model, "--data", reviews)
        assert "was trained on rows of" in whole.err
        assert command("predict", model, "--data", reviews, "--out", tmp_path / "before.csv", "--overwrite").code == 0
        assert (tmp_path / "before.csv").read_bytes() == (tmp_path / "now.csv").read_bytes()
    done = command("distill", "--resume", "--out", small)
    assert done.code == 0 and "finished already" in done.err and f"model: {small / 'student'}\n" in done.out
    out = tmp_path / "next"
    asked = ("distill", "--teacher", small, "--init", small, "--data", reviews, "--max-steps", 1)
    done = command(*asked, "--out", out)
    assert done.code == 0, done.err
    written = tomllib.loads((out / "run.toml").read_text())
    assert (written["teacher"], written["max_length"]) == ("../small", 16)


def test_an_unfinished_run_of_before_ends_in_the_new_place(command, small):
    whole = files(small)
    old_layout(small)
    (small / "metrics.json").unlink()
    done = command("distill", "--resume", "--out", small)
    assert done.code == 0 and f"model: {small}\n" in done.out, done.err
    assert files(small) == whole


def test_a_run_killed_again_and_again_while_its_model_is_put_in_place(command, small, reviews, tmp_path, monkeypatch):
    whole, out, replace = files(small), tmp_path / "killed", Path.replace
    asked: tuple[object, ...] = ("--config", small / "run.toml")
    for at in ("README.md", "model.safetensors", "config.json"):
        with monkeypatch.context() as killed:

            def stop(path: Path, place: Path, at: str = at, killed: pytest.MonkeyPatch = killed) -> Path:
                if place == out / at:
                    # A killed process clears nothing away.
                    killed.setattr(atomic.shutil, "rmtree", lambda *given, **more: None)
                    raise KeyboardInterrupt
                return replace(path, place)

            killed.setattr(Path, "replace", stop)
            assert command("distill", *asked, "--out", out).code == 130
        assert not (out / "config.json").exists() and len(list(out.glob(".stillery-part-*"))) == 1
        done = command("evaluate", out, "--data", reviews)
        assert done.code == 2 and "this run is not finished" in done.err
        asked = ("--resume",)
    done = command("distill", "--resume", "--out", out)
    assert done.code == 0, done.err
    assert files(out) == whole


def test_a_plain_checkpoint_is_no_place_for_a_run(command, tiny_teacher, reviews, tmp_path):
    out = shutil.copytree(tiny_teacher, tmp_path / "checkpoint")
    asked = ("distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 2, *SMALL)
    for more in ((), ("--resume",)):
        done = command(*asked, *more, "--out", out)
        assert done.code == 2 and f"--out {out} is not empty and holds no run" in done.err
    assert {path.name for path in out.iterdir()} == {path.name for path in tiny_teacher.iterdir()}
