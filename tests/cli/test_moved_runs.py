"""Run folders hold no path of the machine, and repeat from anywhere: where they are, moved, and from another folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from text_models import ask as ask_text
from text_models import make_writer, write_pairs

SMALL = ("--max-steps", 2, "--batch-size", 8)
WRITTEN = ("run.toml", "metrics.json", "log.jsonl", "README.md", "config.json")

RECIPE = """
from stillery.recipe import Recipe, Stage

def build():
    return Recipe(stages=(Stage(hard_weight=1.0),))
"""


@pytest.fixture
def project(tiny_teacher: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data and a teacher, which is the working directory."""
    folder = tmp_path / "project"
    shutil.copytree(tiny_teacher, folder / "models" / "teacher")
    (folder / "data").mkdir()
    shutil.copy(reviews, folder / "data" / "reviews.csv")
    monkeypatch.chdir(folder)
    return folder


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def distill(command, *more: object) -> None:
    given = ("--teacher", "models/teacher", "--data", "data/reviews.csv", "--layers", 2, *SMALL)
    done = command("distill", *given, *more)
    assert done.code == 0, done.err


def texts_of(out: Path) -> dict[str, str]:
    """Every file of a run folder that is text."""
    kept = {path for path in out.rglob("*") if path.is_file() and path.suffix in (".toml", ".json", ".jsonl", ".md")}
    return {path.relative_to(out).as_posix(): path.read_text(encoding="utf-8") for path in kept}


def assert_holds_no_path(out: Path, *also: str) -> None:
    found = texts_of(out)
    assert set(WRITTEN) | set(also) <= found.keys()
    # Every fixture lies in one and the same folder for temporary files.
    machine = str(out.parents[3])
    assert machine.count("/") >= 2, machine
    for name, text in found.items():
        assert machine not in text, (name, text[max(0, text.index(machine) - 200) : text.index(machine) + 200])


def test_no_file_of_a_run_folder_holds_a_path_of_the_machine(command, project):
    teacher, data = project / "models" / "teacher", project / "data" / "reviews.csv"
    (project / "mine.py").write_text(RECIPE)
    given = ("--data", data, *SMALL, "--out")
    for name, more in {
        "auto": ("--init", "auto", "--method", "rail-kd", "--pair", "similar", "--cache", "on"),
        "few": ("--init-from", teacher, "--init", "first", "--samples", 60, "--label-noise", 0.1, "--max-length", 16),
        "checkpoint": ("--init", teacher, "--method", "l-ild", "--ild-data", data, "--ild-teacher", teacher),
        "own": ("--recipe", f"{project / 'mine.py'}:build"),
    }.items():
        depth = () if name == "checkpoint" else ("--layers", 2)
        done = command("distill", "--teacher", teacher, *depth, *more, *given, project / "runs" / name)
        assert done.code == 0, done.err
    assert_holds_no_path(project / "runs" / "auto", "start.json", "similarity.json")
    assert_holds_no_path(project / "runs" / "few", "conditions.json")
    assert_holds_no_path(project / "runs" / "checkpoint")
    assert_holds_no_path(project / "runs" / "own")
    written = tomllib.loads((project / "runs" / "checkpoint" / "run.toml").read_text())
    assert written["paths"] == "relative to this file" and written["data"] == written["ild_data"]
    assert {written[name] for name in ("teacher", "init", "ild_teacher")} == {"../../models/teacher"}
    assert tomllib.loads((project / "runs" / "own" / "run.toml").read_text())["recipe"] == "../../mine.py:build"
    card = (project / "runs" / "few" / "README.md").read_text()
    assert "- Teacher: `teacher`\n" in card and "copied from teacher" in card and '\ndata = "reviews.csv"\n' in card
    card = (project / "runs" / "checkpoint" / "README.md").read_text()
    assert "start: copied from teacher: embeddings" in card and "beside `teacher`, `reviews.csv`, then" in card


def test_a_fine_tuned_model_and_one_that_generates_text_hold_none_either(command, project):
    out = project / "runs" / "teacher"
    given = ("--data", project / "data" / "reviews.csv", *SMALL, "--restarts", 1)
    assert command("finetune", "--model", project / "models" / "teacher", *given, "--out", out).code == 0
    assert_holds_no_path(out)
    model, pairs = make_writer(project / "models" / "t5", "t5"), write_pairs(project / "data" / "pairs.csv")
    assert command(*ask_text("finetune", model, pairs, project / "runs" / "text")).code == 0
    assert_holds_no_path(project / "runs" / "text")
    more = ("--layers", 2, "--method", "kd")
    assert command(*ask_text("distill", project / "runs" / "text", pairs, project / "runs" / "small", *more)).code == 0
    assert_holds_no_path(project / "runs" / "small")


def test_a_run_is_repeated_from_another_working_directory(command, project, tmp_path, monkeypatch):
    distill(command, "--out", "runs/small")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    done = command("distill", "--config", "../project/runs/small/run.toml", "--out", "again")
    assert done.code == 0, done.err
    assert weights(Path("again")) == weights(project / "runs" / "small")
    assert tomllib.loads(Path("again/run.toml").read_text())["teacher"] == "../../project/models/teacher"
    done = command("distill", "--config", project / "runs" / "small" / "run.toml", "--out", project / "runs" / "near")
    assert done.code == 0, done.err
    assert (project / "runs/near/run.toml").read_bytes() == (project / "runs/small/run.toml").read_bytes()


def test_a_moved_project_repeats_goes_on_and_scores(command, project, tmp_path, monkeypatch):
    distill(command, "--max-length", 9, "--out", "runs/small")
    small = weights(project / "runs" / "small")
    monkeypatch.chdir(tmp_path)
    moved = tmp_path / "other" / "place" / "project"
    shutil.move(project, moved)
    run = moved / "runs" / "small"
    assert command("check", run / "run.toml").code == 0
    done = command("distill", "--config", run / "run.toml", "--out", moved / "runs" / "again")
    assert done.code == 0, done.err
    assert weights(moved / "runs" / "again") == small
    # It is the same run still: it is read back, and gone on with where it had not ended.
    done = command("distill", "--resume", "--out", run)
    assert done.code == 0 and "finished already" in done.err
    (run / "metrics.json").unlink()
    done = command("distill", "--resume", "--out", run)
    assert done.code == 0 and weights(run) == small
    given = ("--teacher", moved / "models/teacher", "--data", moved / "data/reviews.csv", "--layers", 2, *SMALL)
    done = command("distill", *given, "--max-length", 9, "--out", run, "--resume")
    assert done.code == 0 and "finished already" in done.err
    # What is scored is read as it was in training, and known to be what it was trained on.
    found = json.loads((run / "metrics.json").read_text())["metrics"]
    done = command("evaluate", run, "--data", moved / "data" / "reviews.csv", "--split", "test", "--json")
    assert done.json["metrics"] == found and "longer than 9 tokens" in done.err
    done = command("evaluate", run, "--data", moved / "data" / "reviews.csv")
    assert done.code == 0 and "was trained on rows of" in done.err
    done = command("predict", run, "--data", moved / "data" / "reviews.csv", "--out", tmp_path / "labelled.csv")
    assert done.code == 0 and "longer than 9 tokens" in done.err


def test_a_run_that_was_killed_goes_on_where_it_was_moved_to(command, project, tmp_path, monkeypatch):
    given = ("--teacher", "models/teacher", "--data", "data/reviews.csv", "--layers", 2, "--batch-size", 8)
    more = (*given, "--max-steps", 6, "--checkpoint-every", 2)
    assert command("distill", *more, "--out", "runs/whole").code == 0
    code = (
        "import os, sys\nfrom stillery.train import checkpoint\nsave = checkpoint.save\n"
        "def stop(*given, **named):\n    save(*given, **named)\n    os._exit(9)\ncheckpoint.save = stop\n"
        "from stillery.cli.main import main\nmain(sys.argv[1:])"
    )
    asked = [str(one) for one in ("distill", *more, "--out", "runs/cut")]
    assert subprocess.run([sys.executable, "-c", code, *asked], capture_output=True).returncode == 9
    whole = weights(project / "runs" / "whole")
    monkeypatch.chdir(tmp_path)
    shutil.move(project, tmp_path / "moved")
    done = command("distill", "--resume", "--out", tmp_path / "moved" / "runs" / "cut")
    assert done.code == 0, done.err
    assert weights(tmp_path / "moved" / "runs" / "cut") == whole


def test_a_run_folder_of_before_is_read(command, project):
    """Paths were absolute, without a line that says how they are meant."""
    distill(command, "--out", "runs/small")
    file = project / "runs" / "small" / "run.toml"
    older = file.read_text().replace('paths = "relative to this file"\n', "").replace("../..", str(project))
    assert f'data = "{project}/data/reviews.csv"' in older and "../" not in older
    file.write_text(older)
    done = command("distill", "--resume", "--out", "runs/small")
    assert done.code == 0 and "finished already" in done.err
    done = command("distill", "--config", file, "--out", "runs/again")
    assert done.code == 0 and weights(project / "runs" / "again") == weights(project / "runs" / "small")
    assert tomllib.loads((project / "runs/again/run.toml").read_text())["data"] == "../../data/reviews.csv"


def test_a_name_is_no_folder_that_happens_to_be_called_like_it(command, project):
    distill(command, "--init", "first", "--out", "runs/small")
    (project / "runs" / "small" / "first").mkdir()
    done = command("check", "runs/small/run.toml")
    assert done.code == 0 and "layers 1, 2 as 1..2" in done.out


def test_a_path_that_leads_nowhere_says_where(command, project, tmp_path):
    distill(command, "--out", "runs/small")
    (project / "data" / "reviews.csv").rename(tmp_path / "gone.csv")
    done = command("check", "runs/small/run.toml")
    assert done.code == 2 and done.err == f"stillery: no such file: {project}/data/reviews.csv\n"
    file = project / "runs" / "small" / "run.toml"
    file.write_text(file.read_text().replace("relative to this file", "relative"))
    done = command("check", file)
    line = f"stillery: {file}: paths is 'relative': write 'relative to this file', or leave the line out"
    assert done.code == 2 and done.err.splitlines() == [line]


def test_a_recipe_of_ones_own_is_found_from_anywhere(command, project, tmp_path, monkeypatch):
    (project / "mine.py").write_text(RECIPE)
    distill(command, "--recipe", "mine.py:build", "--out", "runs/own")
    monkeypatch.chdir(tmp_path)
    done = command("distill", "--config", project / "runs/own/run.toml", "--out", tmp_path / "again")
    assert done.code == 2 and f"if you trust it, pass --recipe {project}/mine.py:build" in done.err
    done = command("distill", "--config", project / "runs/own/run.toml", "--recipe", project / "mine.py:build",
                   "--out", project / "runs/own", "--resume")  # fmt: skip
    assert done.code == 0 and "finished already" in done.err


@pytest.fixture
def other_root(project: Path) -> Iterator[Path]:
    """A folder that has nothing but the root in common with the project: as a cluster's /data with its /home."""
    for parent in map(Path, ("/dev/shm", "/var/tmp")):
        if os.access(parent, os.W_OK) and parent.resolve().parts[1] != project.resolve().parts[1]:
            with tempfile.TemporaryDirectory(prefix="other-root-", dir=parent) as folder:
                yield Path(folder).resolve()
            return
    pytest.skip("no folder under another root can be written to")


def bytes_of(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_paths_under_another_root_are_in_one_file_that_can_be_left_out(
    command, project, other_root, tmp_path, monkeypatch
):
    shutil.move(project / "models", other_root / "models")
    shutil.move(project / "data", other_root / "data")
    (other_root / "mine.py").write_text(RECIPE)
    teacher, data, out = other_root / "models" / "teacher", other_root / "data" / "reviews.csv", project / "out"
    given = ("--teacher", teacher, "--data", data, "--recipe", f"{other_root}/mine.py:build", "--layers", 2, *SMALL)
    given = (*given, "--track", "tensorboard")
    done = command("distill", *given, "--out", out)
    assert done.code == 0, done.err
    line = f"{out}/machine.toml has the paths of teacher, data, recipe, which lie elsewhere: leave it out to share"
    assert line in done.err
    found = bytes_of(out)
    assert {name for name, content in found.items() if other_root.name.encode() in content} == {"machine.toml"}
    assert not [name for name, content in found.items() if str(tmp_path).encode() in content]
    written = tomllib.loads(found["run.toml"].decode())
    assert written["elsewhere"] == ["data", "recipe", "teacher"]
    assert [written[name] for name in written["elsewhere"]] == ["reviews.csv", "mine.py:build", "teacher"]
    assert found["machine.toml"].decode().splitlines()[0].startswith("# Paths of this machine: --config and --resume")
    # With the file, all is as it was; without it, one line asks for what is missing.
    own = ("--recipe", f"{other_root}/mine.py:build")
    repeat = ("distill", "--config", out / "run.toml", *own, "--out", project / "again")
    assert command(*repeat).code == 0
    assert weights(project / "again") == weights(out)
    (out / "machine.toml").unlink()
    asked = (
        f"stillery: {out}/run.toml: data 'reviews.csv' and teacher 'teacher' lie elsewhere, and machine.toml with "
        "their paths is not here: to run it, pass --data PATH --teacher PATH\n"
    )
    shutil.rmtree(project / "again")
    for wanting in (repeat, ("distill", "--resume", "--out", out, *own)):
        done = command(*wanting)
        assert done.code == 2 and done.err == asked, done.err
    done = command("check", out / "run.toml")
    assert done.code == 2 and "pass --data PATH --recipe FILE:FUNCTION --teacher PATH" in done.err
    # What is given has to be what the run was made from.
    changed = project / "reviews.csv"
    changed.write_text(data.read_text() + "One more.,positive\n")
    done = command(*repeat, "--data", changed, "--teacher", teacher)
    assert done.code == 2 and "the data changed since this run file was written" in done.err
    done = command(*repeat, "--data", data, "--teacher", teacher)
    assert done.code == 0 and weights(project / "again") == weights(out)
    # A run without its paths is scored, and gone on with where they are given.
    assert command("evaluate", out, "--data", data).code == 0
    done = command("distill", "--resume", "--out", out, *own, "--data", data, "--teacher", teacher)
    assert done.code == 0 and "finished already" in done.err, done.err
    done = command("distill", "--resume", "--out", out, *given)
    assert done.code == 0 and "finished already" in done.err, done.err
    (out / "metrics.json").unlink()
    before = weights(out)
    assert command("distill", "--resume", "--out", out, *given).code == 0
    assert weights(out) == before and (out / "machine.toml").is_file()


def test_a_run_file_that_names_another_root_in_full_is_read(command, project, other_root):
    """As run files were before there was `machine.toml`."""
    shutil.move(project / "data", other_root / "data")
    data = other_root / "data" / "reviews.csv"
    given = ("--teacher", "models/teacher", "--data", data, "--layers", 2, *SMALL)
    assert command("distill", *given, "--out", "out").code == 0
    (project / "out" / "machine.toml").unlink()
    file = project / "out" / "run.toml"
    older = file.read_text().replace('elsewhere = [\n    "data",\n]\n', "").replace('"reviews.csv"', f'"{data}"')
    assert "elsewhere" not in older and tomllib.loads(older)["data"] == str(data)
    file.write_text(older)
    done = command("distill", "--config", file, "--out", "again")
    assert done.code == 0 and weights(project / "again") == weights(project / "out"), done.err
