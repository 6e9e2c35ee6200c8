"""How text runs read: as their teacher was trained to, and other texts for a hidden-state stage in their own way."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from text_models import SHORT, SMALL, ask, make_writer, write_pairs

from stillery.jobs.config.run_file import ask as asked_for
from stillery.jobs.config.settings import Distill
from stillery.jobs.distill import prepare_distill

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
    return (run / "model.safetensors").read_bytes()


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
    # The same command continues with its run, and a run file repeats it, whatever the teacher reads.
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
    prepared = prepare_distill(asked_for(Distill, given))
    reading, other = prepared.encoding.reading, prepared.texts_encoding.reading
    assert (reading.prefix, reading.max_source) == ("answer : ", 16)
    assert (other.prefix, other.max_source) == (GERMAN, 7)
    given |= {"ild_task": None, "ild_data": str(pairs)}
    other = prepare_distill(asked_for(Distill, given)).texts_encoding.reading
    assert (other.prefix, other.max_source) == ("answer : ", 7)
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
        assert done.code == 2 and "beside 16 of the prefix and 1 special" in done.err
    assert not (tmp_path / "run").exists()
    done = command("evaluate", llama, "--data", pairs, *SHORT, "--prompt", long)
    assert done.code == 2 and line in done.err and len(done.err.splitlines()) == 1


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


def scores(done) -> dict:
    assert done.code == 0, done.err
    return done.json


def test_the_other_model_reads_as_its_own_run_does(command, llama, pairs, tmp_path):
    assert command(*ask("finetune", llama, pairs, tmp_path / "one", "--prompt", PROMPT)).code == 0
    assert command(*ask("finetune", llama, pairs, tmp_path / "two", "--prompt", "{source} :", "--lr", 0.01)).code == 0
    alone = {run: scores(command("evaluate", tmp_path / run, "--data", pairs, "--json")) for run in ("one", "two")}
    for run, other, prompt in (("one", "two", "{source} :"), ("two", "one", PROMPT)):
        done = command("evaluate", tmp_path / run, "--data", pairs, "--against", tmp_path / other, "--json")
        assert scores(done)["metrics"] == alone[run]["metrics"]
        assert scores(done)["teacher_metrics"] == alone[other]["metrics"]
        line = f"reads texts as it was trained to, not as {tmp_path / run}: --prompt '{prompt}'"
        assert line in " ".join(done.err.split())
    # What is asked for counts for both; a model that no run made reads as the one it is compared with.
    done = command("evaluate", tmp_path / "one", "--data", pairs, "--against", tmp_path / "two", "--prompt", PROMPT,
                   "--json")  # fmt: skip
    assert scores(done)["teacher_metrics"] != alone["two"]["metrics"] and "was trained to" not in done.err
    done = command("evaluate", tmp_path / "one", "--data", pairs, "--against", llama, "--json")
    theirs = command("evaluate", llama, "--data", pairs, "--prompt", PROMPT, *SHORT, *SMALL[4:], "--json")
    assert scores(done)["teacher_metrics"] == scores(theirs)["metrics"] and "was trained to" not in done.err


def test_a_classifier_beside_another_reads_at_its_own_length(command, make_bert, reviews, tmp_path):
    for name, length in (("short", 8), ("long", 40)):
        done = command("finetune", "--model", make_bert(), "--data", reviews, "--max-length", length, "--max-steps", 3,
                       "--samples", 40, "--lr", 0.01, "--out", tmp_path / name)  # fmt: skip
        assert done.code == 0, done.err
    asked = ("--data", reviews, "--split", "test", "--json")
    alone = scores(command("evaluate", tmp_path / "short", *asked))
    done = command("evaluate", tmp_path / "long", *asked, "--against", tmp_path / "short")
    assert scores(done)["teacher_metrics"] == alone["metrics"] and "--max-length 8" in done.err


def test_the_prefix_of_a_task_that_is_new_to_a_model(command, captions, tmp_path):
    t5 = make_writer(tmp_path / "t5", "t5", layers=1, words=("German:", "French:"))
    french = "translate English to French: "
    for part in ("train", "val"):
        file = captions / "multi30k" / f"{part}.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        file.write_text("".join(json.dumps(row | {"fr": row["de"]}) + "\n" for row in rows))
    task = ("--data-dir", captions, "--task")
    done = command("finetune", "--model", t5, *task, "multi30k-en-de", *SMALL, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    asked = ("evaluate", tmp_path / "run", *task)
    done = command(*asked, "multi30k-en-fr", "--json")
    assert f"prefix of multi30k-en-fr, '{french}', not that of {tmp_path / 'run'}, '{GERMAN}'" in done.err
    new = scores(done)["metrics"]
    assert new == scores(command(*asked, "multi30k-en-fr", "--prefix", french, "--json"))["metrics"]
    assert new != scores(command(*asked, "multi30k-en-fr", "--prefix", GERMAN, "--json"))["metrics"]
    assert "sources have the prefix" not in command(*asked, "multi30k-en-de").err
    # A run that went on with another prefix than its task's keeps it, in its task.
    done = command("finetune", "--model", t5, *task, "multi30k-en-de", "--prefix", "answer : ", *SMALL,
                   "--out", tmp_path / "own")  # fmt: skip
    assert done.code == 0, done.err
    done = command("evaluate", tmp_path / "own", *task, "multi30k-en-de")
    assert f"prefix of {tmp_path / 'own'}, 'answer : ', not that of multi30k-en-de, '{GERMAN}'" in done.err


def test_training_goes_on_with_the_reading_of_a_run(command, llama, t5, captions, pairs, tmp_path):
    assert command(*ask("finetune", llama, pairs, tmp_path / "first", "--prompt", PROMPT)).code == 0
    more = ("finetune", "--model", tmp_path / "first", "--data", pairs, *SMALL, "--out")
    done = command(*more, tmp_path / "taken")
    assert done.code == 0, done.err
    (line,) = [line for line in done.err.splitlines() if "was trained to read" in line]
    assert line.endswith(f"--max-length 16, --max-target-length 12, --prompt '{PROMPT}'")
    found = settings(tmp_path / "taken")
    assert (found["prompt"], found["max_length"], found["max_target_length"]) == (PROMPT, 16, 12)
    done = command(*more, tmp_path / "own", "--max-length", 20)
    assert done.code == 0 and "another way than --max-length 20 (not 16)" in done.err
    done = command(*more, tmp_path / "taken", "--resume")
    assert done.code == 0 and "finished already" in done.err
    # A task that is new to a model is read with its own prefix.
    assert command(*ask("finetune", t5, pairs, tmp_path / "other", "--prefix", "answer : ")).code == 0
    done = command("finetune", "--model", tmp_path / "other", "--task", "multi30k-en-de", "--data-dir", captions,
                   *SMALL, "--out", tmp_path / "task")  # fmt: skip
    assert done.code == 0, done.err
    assert settings(tmp_path / "task")["prefix"] == GERMAN and settings(tmp_path / "task")["max_length"] == 16


def test_a_run_is_searched_as_it_was_scored(command, llama, pairs, tmp_path):
    search = ("--beams", 3, "--max-new-tokens", 9, "--no-repeat-ngram", 2)
    assert command(*ask("finetune", llama, pairs, tmp_path / "run", *search)).code == 0
    found = scores(command("evaluate", tmp_path / "run", "--data", pairs, "--split", "test", "--json"))
    before = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert found["decoding"] == before["decoding"] and found["metrics"] == before["metrics"]
    assert (found["decoding"]["beams"], found["decoding"]["max_new_tokens"]) == (3, 9)
    done = command("evaluate", tmp_path / "run", "--data", pairs, "--beams", 1)
    assert done.code == 0 and "  search: --beams 1 --max-new-tokens 9 --no-repeat-ngram 2\n" in done.out


def test_texts_that_cannot_be_so_long_and_so_short(command, llama, pairs, tmp_path):
    lengths = ("--min-new-tokens", 20, "--max-new-tokens", 10)
    line = "--min-new-tokens 20 is more than --max-new-tokens 10: lower it, or raise --max-new-tokens"
    for asked in (ask("finetune", llama, pairs, tmp_path / "run"), ("evaluate", llama, "--data", pairs, *SHORT)):
        done = command(*asked, *lengths)
        assert done.code == 2 and done.err.splitlines() == [f"stillery: {line}"]
