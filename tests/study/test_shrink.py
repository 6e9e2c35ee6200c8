"""A search with tiny models: what it recommends follows from its runs, and nothing is trained twice."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

import stillery
from stillery.errors import UserError
from stillery.study.shrink.measure import DEV, HALF, HELD_OUT, basis, in_first_half
from stillery.study.shrink.request import Given, Request, requested
from stillery.study.shrink.run import Shrunk, run_shrink

TRAINING = {"max_length": 32, "batch_size": 8, "max_steps": 12, "lr": 1e-3}


@pytest.fixture(autouse=True)
def _no_teacher_cache(monkeypatch) -> None:
    # Whether a cache is used is decided by the clock, and rounds otherwise: results are compared below.
    monkeypatch.setenv("STILLERY_CACHE", "off")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, tiny_teacher, reviews) -> Path:
    """A tiny teacher that held out a tenth of train."""
    out = tmp_path_factory.mktemp("teacher") / "run"
    stillery.finetune(model=tiny_teacher, data=reviews, out=out, holdout=0.1, quiet=True, **TRAINING)
    return out


def asked(teacher: Path, data: Path, **given) -> Request:
    settings = {"data": str(data), **TRAINING, **given.pop("settings", {})}
    return requested(Given(teacher=str(teacher), **given), settings, str)


def run(teacher: Path, data: Path, out: Path, **given) -> Shrunk:
    return run_shrink(asked(teacher, data, **given), out, workers=0)


def written(out: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in (out / "cells").glob("*/metrics.json")}


def held_out(run: Path) -> float:
    """The held-out score of the weights that a run kept."""
    training = json.loads((run / "metrics.json").read_text())["training"]
    assert training["selected_on"] == "holdout"
    best = training["dev_best"] if training["kept_step"] != training["steps"] else training["dev_last"]
    return best["accuracy"]


def test_from_a_teacher_to_one_recommended_folder(teacher, reviews, tmp_path):
    out = tmp_path / "out"
    found = run(teacher, reviews, out, within=0, widths="16,32", inits="first,even", layers="1,2")
    rows = list(csv.DictReader((out / "curve.csv").open(encoding="utf-8")))
    assert [row["student"] for row in rows[:3]] == ["teacher", "1 layer x 16, first", "1 layer x 16, even"]
    assert len(rows) == 9
    # Sizes are those of the models, and grow.
    sizes = [int(row["parameters"]) for row in rows[1:]]
    assert sizes == sorted(sizes)
    own = json.loads((teacher / "metrics.json").read_text())["training"]["dev_last"]["accuracy"]
    assert float(rows[0]["score"]) == pytest.approx(own, abs=1e-3)
    # The scores are those of the runs, and the recommended one follows from them.
    trained = [row for row in rows[1:] if row["state"] == "trained"]
    for row in rows[1:]:
        if row["score"]:
            assert held_out(out / row["cell"]) == pytest.approx(float(row["score"]))
            assert row["steps"] == ("12" if row["state"] == "trained" else "3")
    good = [row for row in trained if float(row["score"]) >= own - 1e-3]
    best = good[0] if good else max(trained, key=lambda row: float(row["score"]))
    assert [row["student"] for row in rows if row["recommended"] == "True"] == [best["student"]]
    assert found.found is bool(good)
    if good:
        assert trained[-1] == best
    # One folder, as it was trained, that transformers loads.
    model = AutoModelForSequenceClassification.from_pretrained(found.recommended)
    assert model.num_parameters() == int(best["parameters"])
    cell = out / best["cell"]
    assert (found.recommended / "model.safetensors").read_bytes() == (cell / "model.safetensors").read_bytes()
    guess = pipeline("text-classification", model=model, tokenizer=AutoTokenizer.from_pretrained(found.recommended))
    assert guess("A quiet triumph.")[0]["label"] in ("negative", "positive")
    # Its score on test is that of its run, also when it is scored again by what its run file says.
    metrics = json.loads((cell / "metrics.json").read_text())
    record = json.loads((out / "curve.json").read_text())
    assert record["scored_once"]["split"] == metrics["split"] == "test"
    assert record["scored_once"]["score"] == metrics["metrics"]["accuracy"]
    assert record["scored_once"]["between"] == metrics["difference"]["interval"]
    assert record["chosen_on"] == "held-out" and record["recommended"] == best["student"]
    again = stillery.evaluate(found.recommended, data=reviews, split="test", quiet=True)
    assert again["metrics"]["accuracy"] == pytest.approx(metrics["metrics"]["accuracy"])
    # The same again trains nothing; all of them train only what is missing; another margin nothing at all.
    before = written(out)
    assert run(teacher, reviews, out, within=0, widths="16,32", inits="first,even", layers="1,2").text == found.text
    assert written(out) == before
    looser = run(teacher, reviews, out, within=100, widths="16,32", inits="first,even", layers="1,2")
    assert looser.found and written(out) | before == written(out)
    every = run(teacher, reviews, out, within=0, widths="16,32", inits="first,even", layers="1,2", every=True)
    assert {row["state"] for row in every.students} == {"trained"}
    assert {name: time for name, time in written(out).items() if name in before} == before
    # Another search is refused, and changes nothing.
    with pytest.raises(UserError, match="holds another search"):
        run(teacher, reviews, out, settings={"lr": 1e-4})
    with pytest.raises(UserError, match="no student costs so little: the smallest, 1 layer x 32, has"):
        run(teacher, reviews, tmp_path / "other", max_params="1k")
    assert not (tmp_path / "other").exists()


def test_the_best_student_under_a_limit(teacher, reviews, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 99.0, 99.0))
    found = run(teacher, reviews, tmp_path / "out", max_params=700_000, widths=[16, 24], layers=[1, 2])
    assert "warning: the machine is busy (load 99 on" in capsys.readouterr().err
    assert {row["state"] for row in found.students if row["parameters"] > 700_000} == {"trained", "over the limit"}
    allowed = [row for row in found.students[1:] if row["parameters"] <= 700_000]
    best = max(allowed, key=lambda row: (row["score"], -row["parameters"]))
    assert [row["student"] for row in found.students if row["recommended"]] == [best["student"]]
    assert "of those with at most 700,000 parameters" in found.text
    slow = max(row["latency_ms"] for row in found.students)
    limited = run(teacher, reviews, tmp_path / "fast", max_latency=10 * slow, layers=[1])
    assert limited.found and len(limited.students) == 2


def test_a_teacher_that_knows_what_is_held_out_is_compared_on_other_examples(tiny_teacher, teacher, reviews, tmp_path):
    """On dev where test is reported, else on a half of dev; never on texts that the teacher has learnt from."""
    _, found = basis(asked(teacher, reviews), str(teacher), (1, 32))
    assert (found.chooses, found.reports) == (HELD_OUT, "test")
    request, found = basis(asked(tiny_teacher, reviews), str(tiny_teacher), (1, 32))
    assert (found.chooses, found.reports) == (DEV, "test")
    assert "holdout" not in request.settings
    lines = reviews.read_text().splitlines()
    for name, some in {"train": lines[1:121], "dev": lines[121:]}.items():
        (tmp_path / f"{name}.csv").write_text("\n".join([lines[0], *some]), encoding="utf-8")
    shrunk = run(tiny_teacher, tmp_path, tmp_path / "out", layers=[1], every=True)
    record = json.loads((tmp_path / "out" / "curve.json").read_text())
    assert record["chosen_on"] == HALF
    table = pq.read_table(tmp_path / "out" / shrunk.students[1]["cell"] / "predictions.parquet").to_pylist()
    first = in_first_half([row["id"] for row in table])
    right = [row["label"] == row["prediction"] for row in table]
    theirs = [row["label"] == row["teacher_prediction"] for row in table]

    def share(values: list[bool], chosen: bool) -> float:
        some = [one for one, half in zip(values, first, strict=True) if half == chosen]
        return 100 * sum(some) / len(some)

    assert shrunk.students[1]["score"] == pytest.approx(share(right, True))
    assert shrunk.students[0]["score"] == pytest.approx(share(theirs, True), abs=1e-3)
    assert record["scored_once"]["score"] == pytest.approx(share(right, False))
    assert record["scored_once"]["teacher"] == pytest.approx(share(theirs, False))
    assert record["scored_once"]["examples"] + record["examples"] == len(table)


def test_from_python_with_what_is_in_memory(tiny_teacher, reviews, tmp_path):
    """The teacher is fine-tuned first; data in memory stays in the folder, so that its runs find it."""
    with reviews.open(encoding="utf-8") as file:
        data = list(csv.DictReader(file))
    call = {"model": tiny_teacher, "data": data, "layers": [1, 2], "out": tmp_path / "out", "quiet": True}
    found = stillery.shrink(**call, **TRAINING)
    assert found.students[0]["student"] == "teacher" and "held-out accuracy" in repr(found)
    before = written(found.out)
    assert len(before) >= 2
    assert stillery.shrink(**call, **TRAINING).text == found.text and written(found.out) == before
    assert 'data = "../given/data.parquet"' in (found.recommended / "run.toml").read_text()
    with pytest.raises(UserError, match="not a setting: did you mean 'layers'"):
        stillery.shrink(**call, layer=[1])


@pytest.mark.slow
def test_killed_and_gone_on_with_it_comes_to_the_same(teacher, reviews, tmp_path):
    """kill -9 of a search and its worker: what is finished is not done again, and the same student is recommended."""
    given = {"within": 0, "layers": "1,2,3", "every": True, "settings": {"max_steps": 60, "checkpoint_every": 5}}
    straight = run(teacher, reviews, tmp_path / "straight", **given)
    out = tmp_path / "killed"
    words = {**TRAINING, **given["settings"], "teacher": teacher, "data": reviews, "within": 0, "layers": "1,2,3"}
    options = [word for name, value in words.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    begun = subprocess.Popen(
        [sys.executable, "-m", "stillery", "shrink", *options, "--every", "--out", str(out)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env=os.environ,
    )  # fmt: skip
    deadline = time.monotonic() + 240
    while not written(out):
        assert time.monotonic() < deadline and begun.poll() is None
        time.sleep(0.01)
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()
    before = written(out)
    assert len(before) < 3 and not (out / "recommended").exists()
    found = run(teacher, reviews, out, **given)
    assert {name: time for name, time in written(out).items() if name in before} == before
    assert [row["score"] for row in found.students] == [row["score"] for row in straight.students]
    assert [row["recommended"] for row in found.students] == [row["recommended"] for row in straight.students]
    weights = [(one.recommended / "model.safetensors").read_bytes() for one in (found, straight)]
    assert weights[0] == weights[1]


def test_students_that_fail_are_reported_and_damaged_results_made_again(teacher, reviews, tmp_path):
    out = tmp_path / "out"
    found = run(teacher, reviews, out, layers="1,2", every=True)
    first, second = (out / row["cell"] for row in found.students[1:])
    (first / "metrics.json").write_text('{"metrics": {', encoding="utf-8")
    assert run(teacher, reviews, out, layers="1,2", every=True).text == found.text
    assert len(list((out / "quarantine").glob("*/run.toml"))) == 1
    # A failed one is in the curve with its reason, and the other is recommended.
    (out / "failed").mkdir()
    (out / "failed" / f"{second.name}.json").write_text('{"reason": "no memory"}', encoding="utf-8")
    for path in second.iterdir():
        path.unlink()
    found = run(teacher, reviews, out, layers="1,2", every=True)
    assert [(row["state"], row["failure"]) for row in found.students[1:]] == [
        ("trained", None),
        ("failed", "no memory"),
    ]
    assert found.students[1]["recommended"]


@pytest.mark.slow
def test_real_weights(tmp_path, stillery):
    """MiniLM on film reviews, by the command line: which student is recommended, and that it loads."""
    common = ("--task", "rotten-tomatoes", "--max-length", 32, "--batch-size", 16, "--lr", "1e-4", "--samples", 1000)
    held = (*common, "--holdout", 0.1)
    done = stillery("finetune", "--model", "minilm-l6", *held, "--max-steps", 30, "--out", tmp_path / "t")
    assert done.returncode == 0, done.stderr
    search = ("shrink", "--teacher", tmp_path / "t", *common, "--max-steps", 15, "--layers", "1,5", "--within", 3)
    done = stillery(*search, "--every", "--out", tmp_path / "s")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "s" / "curve.json").read_text())
    teacher, shallow, deep = record["students"]
    assert record["chosen_on"] == "held-out" and record["scored_once"]["examples"] == 853
    assert shallow["speedup"] > deep["speedup"]
    good = [row for row in (shallow, deep) if row["score"] >= teacher["score"] - 3]
    best = good[0] if good else max((shallow, deep), key=lambda row: row["score"])
    assert record["recommended"] == best["student"] and record["found"] is bool(good)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "s" / "recommended")
    assert model.config.num_hidden_layers == best["layers"]
