"""How text runs read: as their teacher was trained to, and other texts for a stage of layers in their own way."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from text_models import SHORT, SMALL, ask, make_writer, write_pairs

from stillery.jobs.distill import prepare_distill
from stillery.jobs.runfile import ask as asked_for
from stillery.jobs.settings import Distill

PROMPT = "translate : {source} answer :"
GERMAN = "translate English to German: "


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("pairs") / "pairs.csv")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_writer(tmp_path_factory.mktemp("llama"), "llama", layers=2)


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_writer(tmp_path_factory.mktemp("t5"), "t5", layers=2)


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Multi30k with made-up words, in a data folder."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "multi30k").mkdir()
    for part in ("train", "val"):
        rows = [{"en": f"w{row} w{row + 1} w3", "de": f"w{row}"} for row in range(20)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "multi30k" / f"{part}.jsonl").write_text(text)
    return folder


def settings(run: Path) -> dict:
    return tomllib.loads((run / "run.toml").read_text())


def weights(run: Path) -> bytes:
    return (run / "student" / "model.safetensors").read_bytes()


def distil(teacher: Path, pairs: Path, out: Path, *more: object) -> tuple[object, ...]:
    return (
        "distill",
        "--teacher",
        teacher,
        "--data",
        pairs,
        "--layers",
        1,
        "--method",
        "kd",
        *SMALL,
        *more,
        "--out",
        out,
    )


def test_a_student_reads_as_its_teacher_does(command, llama, pairs, tmp_path):
    assert command(*ask("finetune", llama, pairs, tmp_path / "teacher", "--prompt", PROMPT)).code == 0
    done = command(*distil(tmp_path / "teacher", pairs, tmp_path / "taken"))
    assert done.code == 0, done.err
    (line,) = [line for line in done.err.splitlines() if "was trained to read" in line]
    assert line.endswith(f"--max-length 16, --max-target-length 12, --prompt '{PROMPT}'")
    found = settings(tmp_path / "taken")
    assert (found["prompt"], found["max_length"], found["max_target_length"]) == (PROMPT, 16, 12)
    done = command(*distil(tmp_path / "teacher", pairs, tmp_path / "said", *SHORT, "--prompt", PROMPT))
    assert done.code == 0 and "was trained to read" not in done.err
    assert weights(tmp_path / "said") == weights(tmp_path / "taken")
    done = command(*distil(tmp_path / "teacher", pairs, tmp_path / "own", "--prompt", "{source} :", "--max-length", 16))
    assert done.code == 0, done.err
    assert f"another way than --prompt '{{source}} :' (not '{PROMPT}')" in done.err
    assert (
        settings(tmp_path / "own")["prompt"] == "{source} :" and settings(tmp_path / "own")["max_target_length"] == 12
    )
    assert weights(tmp_path / "own") != weights(tmp_path / "taken")
    # The same command goes on with its run, and a run file repeats it, whatever the teacher reads.
    done = command(*distil(tmp_path / "teacher", pairs, tmp_path / "taken"), "--resume")
    assert done.code == 0 and "finished already" in done.err


def test_a_teacher_without_a_run_decides_nothing(command, llama, pairs, tmp_path):
    done = command(*distil(llama, pairs, tmp_path / "run", *SHORT))
    assert done.code == 0 and "was trained to read" not in done.err
    assert settings(tmp_path / "run")["prompt"] == "{source}\n"


def test_the_prefix_of_the_teachers_task(command, t5, llama, captions, pairs, tmp_path):
    done = command("finetune", "--model", t5, "--task", "multi30k-en-de", "--data-dir", captions, *SMALL,
                   "--out", tmp_path / "teacher")  # fmt: skip
    assert done.code == 0, done.err
    assert settings(tmp_path / "teacher")["prefix"] == GERMAN
    done = command(*distil(tmp_path / "teacher", pairs, tmp_path / "taken"))
    assert done.code == 0 and f"--prefix '{GERMAN}'" in done.err
    assert settings(tmp_path / "taken")["prefix"] == GERMAN
    done = command(*distil(tmp_path / "teacher", pairs, tmp_path / "none", "--prefix", ""))
    assert done.code == 0 and f"another way than --prefix '' (not '{GERMAN}')" in done.err
    assert settings(tmp_path / "none")["prefix"] == ""
    assert weights(tmp_path / "none") != weights(tmp_path / "taken")
    # A prefix is nothing to the decoder that the run is compared with.
    done = command("evaluate", tmp_path / "taken", "--data", pairs, "--against", llama, "--beams", 1,
                   "--max-new-tokens", 8, *SHORT, "--json")  # fmt: skip
    assert done.code == 0 and "teacher_metrics" in done.json


def test_a_broken_run_file_beside_the_teacher(command, llama, pairs, tmp_path):
    assert command(*ask("finetune", llama, pairs, tmp_path / "teacher")).code == 0
    file = tmp_path / "teacher" / "run.toml"
    file.write_text(file.read_text().replace("max_length = 16", 'max_length = "long"'))
    done = command(*distil(tmp_path / "teacher", pairs, tmp_path / "run"))
    assert done.code == 2 and "run.toml: max_length is 'long': give a whole number" in done.err


def test_other_texts_are_read_in_their_own_way(command, t5, captions, pairs, tmp_path):
    given = {"teacher": str(t5), "task": "multi30k-en-de", "data_dir": str(captions), "prefix": "answer : ",
             "layers": 1, "method": "l-ild", "ild_task": "multi30k-en-de", "ild_max_length": 7,
             "max_length": 16}  # fmt: skip
    subject = prepare_distill(asked_for(Distill, given)).subject
    assert (subject.reading.prefix, subject.reading.max_source) == ("answer : ", 16)
    assert (subject.supplementary_reading.prefix, subject.supplementary_reading.max_source) == (GERMAN, 7)
    given |= {"ild_task": None, "ild_data": str(pairs)}
    subject = prepare_distill(asked_for(Distill, given)).subject
    assert (subject.supplementary_reading.prefix, subject.supplementary_reading.max_source) == ("answer : ", 7)
    more = ("--method", "l-ild", "--layers", 1, "--ild-data", pairs)
    done = command(*ask("distill", t5, pairs, tmp_path / "run", *more, "--ild-max-length", 4))
    assert done.code == 0, done.err
    assert "supplementary: " in done.err and "sources are longer than 4 tokens and were cut" in done.err
    done = command(*ask("distill", t5, pairs, tmp_path / "x", *more, "--ild-task", "dart"))
    assert done.code == 2 and "both --ild-data and --ild-task are given: give one" in done.err
    done = command(*ask("distill", t5, pairs, tmp_path / "x", "--layers", 1, "--ild-max-length", 9))
    assert done.code == 2 and "--ild-max-length is for the texts of --ild-data or --ild-task" in done.err


@pytest.mark.parametrize(("job", "option"), [("distill", "--teacher"), ("finetune", "--model")])
def test_a_model_that_is_not_there_is_all_that_is_said(command, pairs, tmp_path, job, option):
    nowhere = tmp_path / "tpyo"
    done = command(job, option, nowhere, "--data", pairs, "--source", "source", "--beams", 2, "--out", tmp_path / "run")
    assert done.code == 2 and done.err.splitlines() == [f"stillery: {nowhere}: no such folder"]


def test_a_prompt_without_room_for_a_source(command, llama, t5, pairs, tmp_path):
    long = f"{'translate : ' * 10}{{source}} answer :"
    line = "has no room for a source beside 22 of its template and 1 special; raise --max-length"
    for job, more in (("finetune", ()), ("distill", ("--layers", 1, "--method", "kd"))):
        done = command(*ask(job, llama, pairs, tmp_path / "run", "--prompt", long, *more))
        assert done.code == 2 and line in done.err and len(done.err.splitlines()) == 1
        done = command(*ask(job, t5, pairs, tmp_path / "run", "--prefix", "translate : " * 8, *more))
        assert done.code == 2 and "beside 1 special ones and 16 of the prefix" in done.err
    assert not (tmp_path / "run").exists()
    done = command("evaluate", llama, "--data", pairs, *SHORT, "--prompt", long)
    assert done.code == 2 and line in done.err


def test_a_t5_reads_as_much_as_it_is_asked_to(command, tmp_path):
    folder = make_writer(tmp_path / "t5", "t5", layers=1, n_positions=20)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_max_length": 20}))
    rows = [{"source": f"w{row} " * 30, "target": f"w{row} " * 25} for row in range(12)]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = command("finetune", "--model", folder, "--data", tmp_path / "long.jsonl", *SMALL, "--max-length", 31,
                   "--max-target-length", 26, "--out", tmp_path / "run")  # fmt: skip
    assert done.code == 0 and "cut" not in done.err
    done = command("evaluate", tmp_path / "run", "--data", tmp_path / "long.jsonl", "--max-length", 24)
    assert done.code == 0 and "12 of 12 sources are longer than 24 tokens and were cut" in done.err
