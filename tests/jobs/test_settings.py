"""A run as settings: what is given, what is wrong, and the file it is written to."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

import pytest

from stillery.errors import UserError
from stillery.jobs.config.run_file import ask, read_toml, to_toml
from stillery.jobs.config.settings import Distill, Finetune, resolve, scoring_settings
from stillery.setting import option_name

GIVEN = {"teacher": "t", "data": "d.csv", "layers": 2}


def test_what_is_wrong_holds_its_default_and_the_rest_is_kept():
    asked = resolve(Distill, GIVEN | {"lr": -1, "epochs": 3})
    assert asked.errors == ("lr is -1.0: it must be more than 0",) and asked.wrong == {"lr"}
    assert (asked.run.training.lr, asked.run.training.epochs) == (5e-5, 3)
    assert asked.clear("epochs", "layers") and not asked.clear("epochs", "lr")
    assert asked.gathered().lines == list(asked.errors)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("epochs", True, "give a whole number"),
        ("epochs", 2.0, "give a whole number"),
        ("lr", "1e-4", "give a number"),
        ("lr", float("inf"), "give a finite number"),
        ("warmup", 1.5, "at most 1"),
        ("data", 3, "give a text"),
        ("options", [], "give a table"),
        ("copy_layers", 2, "list of layer numbers"),
        ("copy_layers", ["2"], "list of layer numbers"),
        ("grad_norms", 1, "give true or false"),
        ("head", "old", "choose from fresh, reuse, reuse-frozen"),
    ],
)
def test_each_kind_of_value_is_checked(name, value, words):
    (line,) = resolve(Distill, GIVEN | {name: value}).errors
    assert line.startswith(f"{name} is ") and words in line


def test_whole_numbers_will_do_for_numbers_and_lists_for_tuples():
    run = resolve(Distill, GIVEN | {"lr": 1, "copy_layers": [1, 2], "seed": None}).run
    assert run.training.lr == 1.0 and isinstance(run.training.lr, float)
    assert run.student.copy_layers == (1, 2) and run.training.seed == 0


def test_a_fault_calls_a_setting_as_the_user_did(tmp_path: Path):
    file = tmp_path / "run.toml"
    file.write_text('lr = 0\nepochs = 0\nteacher = "t"\ndata = "d.csv"\n')
    errors = ask(Distill, {"epochs": 0, "batch_size": 0}, file, option_name).errors
    assert errors == (
        "--epochs is 0: it must be at least 1",
        "--batch-size is 0: it must be at least 1",
        f"{file}: lr is 0.0: it must be more than 0",
    )


def test_what_is_said_beside_a_run_file_wins(tmp_path: Path):
    file = tmp_path / "run.toml"
    file.write_text(
        'teacher = "t"\ntask = "imdb"\nseed = 3\n[options]\na = 1\nb = 2\n[fingerprints]\ndata = "x"\nteacher = "y"\n'
    )
    run = ask(Distill, {"data": "d.csv", "options": {"b": 3}}, file).run
    assert (run.data.data, run.data.task, run.training.seed) == ("d.csv", None, 3)
    assert run.method.options == {"a": 1, "b": 3}
    # The file's word holds for the teacher it names, not for the data that took the place of its own.
    assert run.fingerprints == {"teacher": "y"}
    assert ask(Distill, {"teacher": "z"}, file).run.fingerprints == {"data": "x"}
    assert ask(Distill, {"max_length": 9}, file).run.fingerprints == {"data": "x", "teacher": "y"}
    file.write_text('teacher = "t"\ndata = "d.csv"\nencoder_layers = 3\ndecoder_layers = 2\n')
    student = ask(Distill, {"layers": 1}, file).run.student
    assert (student.layers, student.encoder_layers, student.decoder_layers) == (1, None, None)


@pytest.mark.parametrize(
    "asked",
    [
        resolve(Finetune, {"model": "m", "task": "imdb", "lr": 1e-4, "patience": 2, "tensorboard": True}),
        resolve(Distill, GIVEN | {"copy_layers": [1, 2], "options": {"layers": "last"}, "fingerprints": {"data": "a"}}),
    ],
)
def test_a_run_is_read_back_from_its_file(tmp_path: Path, asked):
    assert not asked.errors
    (tmp_path / "run.toml").write_text(to_toml(asked.run, tmp_path))
    again = ask(type(asked.run), {}, tmp_path / "run.toml")
    assert again == dataclasses.replace(asked, run=again.run) and again.run == asked.run


def test_paths_are_written_from_the_folder_of_the_file_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("t", "even"):
        (tmp_path / name).mkdir()
    written = tomllib.loads(to_toml(resolve(Distill, GIVEN | {"init": "even"}).run, tmp_path / "runs" / "a"))
    assert (written["paths"], written["teacher"]) == ("relative to this file", "../../t")
    # What is not there stays as it is, and a word is no folder that happens to be called like it.
    assert (written["data"], written["init"]) == ("d.csv", "even")


def test_a_run_file_that_is_no_text_is_refused(tmp_path: Path):
    (tmp_path / "run.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"run.toml: not UTF-8 text"):
        read_toml(tmp_path / "run.toml")


def test_scoring_settings():
    assert scoring_settings({"data": "d.csv", "task": None, "max_length": 9}).data.max_length == 9
    with pytest.raises(UserError) as raised:
        scoring_settings({"data": "d.csv", "task": "imdb", "max_length": 1, "txet": "a"}, option_name)
    assert raised.value.lines == (
        "--txet is not a setting: did you mean 'text'?",
        "--max-length is 1: it must be at least 4",
        "both --data and --task are given: give one",
    )
