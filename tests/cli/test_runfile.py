"""Any run as a file: `run.toml` beside every result, `--config`, and `stillery check`."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

SMALL = ("--max-steps", 2, "--batch-size", 8)


@pytest.fixture
def run(command, tiny_teacher, reviews, tmp_path) -> Path:
    """A finished run on a copy of the reviews."""
    data = Path(shutil.copy(reviews, tmp_path / "data.csv"))
    out = tmp_path / "run"
    done = command(
        *("distill", "--teacher", tiny_teacher, "--data", data, "--method", "pkd", "--layers", 2),
        *("--option", "layers=last", "--option", "layer-weight=7", "--temperature", 3, "--seed", 5, *SMALL),
        *("--out", out),
    )
    assert done.code == 0, done.err
    return out


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def test_every_setting_is_written_out(run, tiny_teacher):
    values = tomllib.loads((run / "run.toml").read_text())
    assert values["job"] == "distill" and values["paths"] == "relative to this file"
    assert values["data"] == "../data.csv" and (run / values["teacher"]).resolve() == tiny_teacher.resolve()
    assert (values["method"], values["layers"], values["init"], values["head"]) == ("pkd", 2, "first", "fresh")
    assert (values["temperature"], values["seed"], values["lr"], values["max_steps"]) == (3.0, 5, 5e-5, 2)
    assert values["options"] == {"layers": "last", "square": True, "layer_weight": 7, "normalise": True}
    assert values["fingerprints"].keys() == {"data", "teacher", "teacher_config", "teacher_tokenizer"}


def test_a_run_file_reproduces_its_run(command, run, tmp_path):
    done = command("distill", "--config", run / "run.toml", "--out", tmp_path / "again")
    assert done.code == 0, done.err
    assert weights(tmp_path / "again") == weights(run)
    assert (tmp_path / "again" / "run.toml").read_bytes() == (run / "run.toml").read_bytes()
    table = "predictions.parquet"
    assert (tmp_path / "again" / table).read_bytes() == (run / table).read_bytes()


def test_a_fine_tuning_run_file_reproduces_its_run(command, make_bert, reviews, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    assert command("finetune", "--model", make_bert(), "--data", reviews, *SMALL, "--out", one).code == 0
    done = command("finetune", "--config", one / "run.toml", "--out", two)
    assert done.code == 0, done.err
    assert weights(one) == weights(two)
    done = command("check", one / "run.toml")
    assert done.code == 0 and done.out.endswith("run.toml: ok\n")


def test_options_beside_a_run_file_win(command, run, tmp_path, reviews):
    out = tmp_path / "other"
    done = command(
        *("distill", "--config", run / "run.toml", "--seed", 6, "--option", "layers=skip", "--data", reviews),
        *("--out", out),
    )
    assert done.code == 0, done.err
    before, after = (tomllib.loads((folder / "run.toml").read_text()) for folder in (run, out))
    assert (after["seed"], after["options"]) == (6, before["options"] | {"layers": "skip"})
    assert (out / after["data"]).resolve() == reviews.resolve()
    assert weights(out) != weights(run)


def test_check_says_what_would_run_and_writes_nothing(command, run):
    before = sorted(run.rglob("*"))
    done = command("check", run / "run.toml")
    assert done.code == 0, done.err
    assert "128 train" in done.out and "student: bert, 2 layers x 32" in done.out
    assert "patience: student-teacher layers 1-3" in done.out
    assert done.out.endswith(f"{run / 'run.toml'}: ok\n")
    assert sorted(run.rglob("*")) == before


def test_changed_data_is_refused(command, run, tmp_path):
    data = tmp_path / "data.csv"
    data.write_text(data.read_text().replace(",positive", ",negative", 1))
    for arguments in (("check", run / "run.toml"), ("distill", "--config", run / "run.toml", "--out", tmp_path / "x")):
        done = command(*arguments)
        assert done.code == 2 and "the data changed since this run file was written" in done.err
    assert not (tmp_path / "x").exists()
    # The same run in the same folder is another run now.
    options = ("--teacher", run / tomllib.loads((run / "run.toml").read_text())["teacher"], "--data", data)
    done = command("distill", "--config", run / "run.toml", *options, "--out", run, "--resume")
    assert done.code == 2 and "holds another run (it differs in the content of data)" in done.err


def test_paths_in_a_run_file_are_relative_to_it(command, tiny_teacher, reviews, tmp_path, monkeypatch):
    shutil.copy(reviews, tmp_path / "reviews.csv")
    shutil.copytree(tiny_teacher, tmp_path / "teacher")
    # A folder that happens to be called like a choice is not taken for it.
    (tmp_path / "first").mkdir()
    file = tmp_path / "run.toml"
    file.write_text('teacher = "teacher"\ndata = "reviews.csv"\ninit = "first"\nlayers = 2\n')
    monkeypatch.chdir(tmp_path.parent)
    done = command("check", file)
    assert done.code == 0, done.err
    assert "layers 1, 2 as 1..2" in done.out


def test_all_faults_of_a_run_file_are_reported_together(command, tiny_teacher, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        f'teacher = "{tiny_teacher}"\ndata = "nowhere.csv"\nmethod = "layer-foward"\n'
        'batchsize = 8\nlr = "fast"\nkeep = "worst"\nepochs = 1.5\ncopy_layers = [0]\nregression = "no"\n'
        "temperature = 0\nseed = true\n"
    )
    done = command("check", file)
    assert done.code == 2 and done.out == ""
    said = done.err.splitlines()
    assert all(line.startswith("stillery: ") for line in said)
    wanted = [
        "batchsize is not a setting: did you mean 'batch_size'?",
        "lr is 'fast': give a number",
        "keep is 'worst': choose from best, last",
        "epochs is 1.5: give a whole number",
        "copy_layers is [0]: give a list of layer numbers from 1 on",
        "regression is 'no': give true or false",
        "temperature is 0.0: it must be more than 0",
        "seed is True: give a whole number",
        "unknown method 'layer-foward': did you mean 'layer-forward'?",
        "no such file: nowhere.csv",
    ]
    for words in wanted:
        assert any(words in line for line in said), (words, done.err)
    assert any(line.startswith(f"stillery: {file}: lr") for line in said)


def test_what_needs_no_model_is_reported_together_then_all_the_rest(command, tiny_teacher, reviews, tmp_path):
    shape = ("--layers", 9, "--width", 30, "--heads", 4, "--text", "txt")
    done = command(
        *("distill", "--teacher", tiny_teacher, "--data", tmp_path / "nowhere.csv", "--lr", 0, *shape),
        *("--method", "nope", "--max-length", 1, "--out", tiny_teacher),
    )
    first = (
        "--lr is 0.0",
        "--max-length is 1",
        "no such file",
        "unknown method 'nope'",
        "is not empty and holds no run",
    )
    assert done.code == 2 and len(done.err.splitlines()) == len(first)
    assert all(words in done.err for words in first), done.err
    done = command("distill", "--teacher", tiny_teacher, "--data", reviews, *shape, "--out", tmp_path / "out")
    then = ("--layers 9", "width 30 is not divisible", "'txt'")
    assert done.code == 2 and len(done.err.splitlines()) == len(then)
    assert all(words in done.err for words in then), done.err


def test_the_file_of_another_job_is_one_line(command, run, tmp_path):
    done = command("finetune", "--config", run / "run.toml", "--out", tmp_path / "again")
    line = f"stillery: {run}/run.toml: job is 'distill': this command runs 'finetune'; run it with stillery distill"
    assert done.code == 2 and done.err.splitlines() == [line]


def test_a_folder_in_place_of_a_run_file(command, run, tmp_path):
    done = command("check", run)
    assert done.code == 2 and done.err.splitlines() == [f"stillery: {run} is a folder: give {run}/run.toml"]
    done = command("check", tmp_path)
    assert done.code == 2 and "is a folder: give a run file, such as the run.toml of a run folder" in done.err
