"""`stillery compare`, and `stillery evaluate` with several models: tables and differences of real runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from csv_files import read_csv, write_csv
from tagging_models import conll, make_encoder, tagged
from text_models import ask, make_writer, write_pairs

import stillery as library
from stillery.errors import UserError

SHORT = {"max_length": 24, "batch_size": 8, "cache": "off"}
FEW = ("--max-length", 24, "--batch-size", 8, "--cache", "off")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_teacher: Path, reviews: Path) -> Path:
    """A folder with a fine-tuned teacher, two students of it that differ, and an unfinished run."""
    place = tmp_path_factory.mktemp("runs")
    data = shutil.copy(reviews, place / "reviews.csv")
    library.finetune(model=tiny_teacher, data=data, max_steps=12, lr=0.003, max_length=24, out=place / "teacher")
    asked = {"small": {"method": "kd", "layers": 2}, "other": {"method": "none", "layers": 1, "lr": 0.01, "seed": 5}}
    for name, more in asked.items():
        library.distill(teacher=place / "teacher", data=data, max_steps=8, out=place / name, **more, **SHORT)
    (place / "begun").mkdir()
    shutil.copy(place / "small" / "run.toml", place / "begun")
    return place


@pytest.fixture
def here(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the runs, as the working directory."""
    monkeypatch.chdir(runs)
    return runs


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def copied(runs: Path, to: Path, *names: str) -> None:
    """Some runs and what they are of, in another folder."""
    for name in names:
        shutil.copytree(runs / name, to / name)


def rewritten(run: Path, **columns: Any) -> None:
    """The predictions of a run with other columns."""
    table = pq.read_table(run / "predictions.parquet")
    for name, change in columns.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(change(table[name].to_pylist())))
    pq.write_table(table, run / "predictions.parquet")


def test_table_and_differences_of_runs(command, here):
    done = command("compare", "small", "other")
    assert done.code == 0 and done.err == ""
    lines = done.out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    text = " ".join(done.out.split())
    places = [text.index(word) for word in ("teacher: ", "small: kd,", "other: none,")]
    assert places == sorted(places) and text.count("teacher: ") == 1
    assert "accuracy minus that of small (paired, 95%): teacher" in text
    assert "On these 16 test examples" in text and "cover the choice of examples, not the seed of training" in text
    found = command("compare", "small", "other", "--json").json
    assert [one["name"] for one in found["models"]] == ["teacher", "small", "other"]
    assert [found[key] for key in ("task", "split", "examples")] == ["reviews.csv", "test", 16]
    assert [one["layers"] for one in found["models"]] == [4, 2, 1]
    for row in found["models"]:
        metrics = read(Path(row["name"]) / "metrics.json")
        assert row["value"] == metrics["metrics"]["accuracy"] and row["interval"] == metrics["intervals"]["accuracy"]
        assert row["parameters"] == metrics["cost"]["parameters"]
        assert row["train_seconds"] == metrics["cost"]["train_seconds"] and row["agreement"] == metrics.get("agreement")


def test_a_difference_from_the_teacher_is_that_of_the_run(command, here):
    """Which other runs are named beside it does not change it."""
    for names in (("small",), ("other", "small", "teacher")):
        found = command("compare", *names, "--baseline", "teacher", "--json").json
        (apart,) = (one for one in found["differences"] if one["model"] == "small")
        recorded = read(Path("small/metrics.json"))["difference"]
        assert [apart["value"], apart["interval"]] == [recorded["value"], recorded["interval"]]
    found = command("compare", "small", "other", "--metric", "f1_macro", "--json").json
    both = [read(Path(name) / "metrics.json")["metrics"]["f1_macro"] for name in ("other", "small")]
    assert found["differences"][1]["model"] == "other"
    assert found["differences"][1]["value"] == pytest.approx(both[0] - both[1], abs=2e-4)


def test_equal_runs_cannot_be_told_apart(command, runs, tmp_path, monkeypatch):
    copied(runs, tmp_path, "teacher", "small")
    shutil.copytree(tmp_path / "small", tmp_path / "again")
    # A reader in another order.
    rewritten(tmp_path / "again", **dict.fromkeys(pq.read_schema(tmp_path / "again/predictions.parquet").names,
                                                  lambda values: values[::-1]))  # fmt: skip
    monkeypatch.chdir(tmp_path)
    done = command("compare", "small", "again", "--json")
    (apart,) = (one for one in done.json["differences"] if one["model"] == "again")
    assert apart == {"model": "again", "value": 0, "interval": [0, 0], "is_clear": False}
    assert "cannot be distinguished from zero" in done.json["summary"][0] and "again" in done.json["summary"][0]


def test_what_is_higher_is_said_to_be(command, runs, tmp_path, monkeypatch):
    """A model that has all examples right is better than one that has a few; nothing is said of two or three rows."""
    copied(runs, tmp_path, "teacher", "small")
    shutil.copytree(tmp_path / "small", tmp_path / "best")
    labels = pq.read_table(tmp_path / "best" / "predictions.parquet")["label"].to_pylist()
    for name, right in (("best", len(labels)), ("small", 4)):
        wrong = {"negative": "positive", "positive": "negative"}
        given = [label if row < right else wrong[label] for row, label in enumerate(labels)]
        rewritten(tmp_path / name, prediction=lambda _, given=given: given)
        metrics = read(tmp_path / name / "metrics.json")
        metrics["metrics"]["accuracy"] = 100 * right / len(labels)
        (tmp_path / name / "metrics.json").write_text(json.dumps(metrics))
    monkeypatch.chdir(tmp_path)
    found = command("compare", "small", "best", "--json").json
    assert "the accuracy of" in found["summary"][0] and "best" in found["summary"][0].split(" is higher than")[0]
    assert found["differences"][1]["is_clear"] and found["differences"][1]["value"] == 75
    turned = command("compare", "small", "best", "--baseline", "best").out
    assert "lower than that of best" in " ".join(turned.split())
    for name in ("best", "small"):
        table = pq.read_table(tmp_path / name / "predictions.parquet")
        pq.write_table(table.slice(3, 2), tmp_path / name / "predictions.parquet")
        metrics = read(tmp_path / name / "metrics.json")
        accuracy = 50 if name == "small" else 100
        metrics |= {"examples": 2, "metrics": {"accuracy": accuracy}, "intervals": {"accuracy": [0, 100]}}
        metrics["teacher_metrics"] = {}
        (tmp_path / name / "metrics.json").write_text(json.dumps(metrics))
    done = command("compare", "small", "best")
    assert "2 test examples are too few to tell models apart" in done.out
    assert "not distinguished from zero" not in done.out


def test_an_old_layout_and_folders_of_one_name(command, runs, tmp_path, monkeypatch):
    """Checkpoints in `student`, scores of a `part`; two runs called small."""
    for place in ("a", "b"):
        copied(runs, tmp_path / place, "teacher", "small")
        run = tmp_path / place / "small"
        if not (run / "student").is_dir():
            (run / "student").mkdir()
            for file in (file for file in run.iterdir() if file.suffix == ".safetensors" or "config" in file.name):
                file.rename(run / "student" / file.name)
        metrics = read(run / "metrics.json")
        metrics["part"] = metrics.pop("split")
        (run / "metrics.json").write_text(json.dumps(metrics))
    monkeypatch.chdir(tmp_path)
    found = command("compare", "a/small", "b/small/student", "a/small/", "--json").json
    assert [one["name"] for one in found["models"]] == ["a/teacher", "b/teacher", "a/small", "b/small"]
    assert [one["layers"] for one in found["models"]] == [4, 4, 2, 2] and found["split"] == "test"


def test_the_teacher_is_known_where_its_folder_is_gone(command, runs, tmp_path, monkeypatch):
    copied(runs, tmp_path, "small", "other")
    monkeypatch.chdir(tmp_path)
    teacher = command("compare", "small", "other", "--json").json["models"][0]
    metrics = read(tmp_path / "small" / "metrics.json")
    assert (teacher["name"], teacher["value"]) == ("teacher", metrics["teacher_metrics"]["accuracy"])
    assert teacher["parameters"] == metrics["cost"]["teacher_parameters"] and teacher["layers"] is None
    assert teacher["interval"] == read(runs / "teacher" / "metrics.json")["intervals"]["accuracy"]


@pytest.mark.parametrize("suffix", ["csv", "md", "jsonl", "parquet"])
def test_tables_in_files(command, here, suffix, tmp_path):
    file = tmp_path / f"table.{suffix}"
    assert command("compare", "small", "other", "--out", file).code == 0
    if suffix == "csv":
        rows = read_csv(file)
        assert [row["name"] for row in rows] == ["teacher", "small", "other"]
        assert rows[1]["difference"] == "" and rows[2]["difference_low"] != ""
    elif suffix == "md":
        lines = file.read_text().splitlines()
        assert len({line.count("|") for line in lines[:5]}) == 1 and lines[4].startswith("| other: none, 1 layer |")
    else:
        assert file.stat().st_size > 100


def test_no_model_is_loaded(runs):
    code = "import sys\nfrom stillery.cli.main import main\ntry:\n    main(['compare', 'small', 'other'])\nfinally:\n"
    code += "    print([name for name in ('torch', 'transformers', 'sklearn', 'scipy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=runs, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def damaged(runs: Path, place: Path) -> None:
    """Copies of a run, each with one thing wrong."""
    names = ("cut", "lacking", "broken", "numberless", "fewer", "apart", "labels", "rows", "split", "empty")
    for name in names:
        shutil.copytree(runs / "small", place / name)
    bytes_ = (place / "cut" / "predictions.parquet").read_bytes()
    (place / "cut" / "predictions.parquet").write_bytes(bytes_[: len(bytes_) // 2])
    (place / "lacking" / "predictions.parquet").unlink()
    (place / "broken" / "metrics.json").write_text('{"task": "rev')
    (place / "empty" / "metrics.json").write_text("[]")
    for name, changes in (("numberless", {"metrics": {"accuracy": "high"}}), ("split", {"split": "dev"}),
                          ("apart", {"metrics": {"accuracy": 99.0}})):  # fmt: skip
        metrics = read(place / name / "metrics.json") | changes
        (place / name / "metrics.json").write_text(json.dumps(metrics))
    table = pq.read_table(place / "fewer" / "predictions.parquet")
    pq.write_table(table.slice(0, 5), place / "fewer" / "predictions.parquet")
    rewritten(place / "labels", label=lambda values: values[1:] + values[:1])
    rewritten(place / "rows", id=lambda values: [*values[:-2], "901", "902"])
    (place / "notes").mkdir()
    (place / "notes.txt").write_text("")


BAD = [
    ("small no-such", "no-such: no such run folder"),
    ("small notes.txt", "notes.txt is a file folder of a run"),
    ("small notes", "notes: no run of finetune or distill stillery evaluate"),
    ("small begun", "begun: this run is not finished --resume"),
    ("small cut", "cut/predictions.parquet: cannot be read copy the run again"),
    ("small lacking", "lacking/predictions.parquet: no such file"),
    ("small broken", "broken/metrics.json: not as a run writes it copy the run again"),
    ("small empty", "empty/metrics.json: not as a run writes it (no task, examples, metrics, intervals)"),
    ("small numberless", "numberless/metrics.json: not as a run writes it (no metrics)"),
    ("small fewer", "fewer: metrics.json is of 16 examples predictions.parquet of 5"),
    ("small apart", "apart: metrics.json says accuracy 99.00 predictions.parquet comes to"),
    ("small labels", "small and labels different labels for the same rows stillery evaluate small labels --data FILE"),
    ("small rows", "small and rows different rows of reviews.csv (test): 16 and 16, of which they share 14"),
    ("small split", "small and split different data, reviews.csv (test) and reviews.csv (dev) stillery evaluate"),
    ("teacher", "teacher is one run name another"),
    ("small other --baseline tiny", "--baseline tiny known: other, small, teacher"),
    ("small other --baseline smal", "--baseline smal did you mean 'small'?"),
    ("small other --metric acuracy", "--metric acuracy did you mean 'accuracy'?"),
    ("small other --metric bleu", "--metric bleu known: accuracy, f1_macro"),
    ("small other --out table.pdf", "table.pdf format is not known"),
    ("small other --out nowhere/table.md", "nowhere/table.md folder that exists"),
    ("small other --out nowhere/table.csv", "nowhere/table.csv folder nowhere does not exist"),
]  # fmt: skip


@pytest.fixture(scope="module")
def bad(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bad")
    copied(runs, place, "teacher", "small", "other", "begun")
    damaged(runs, place)
    return place


@pytest.mark.parametrize(("asked", "words"), BAD, ids=[asked for asked, _ in BAD])
def test_bad_input_is_one_line(command, bad, monkeypatch, asked, words):
    monkeypatch.chdir(bad)
    before = sorted(bad.rglob("*"))
    done = command("compare", *asked.split())
    assert done.code == 2 and done.out == "" and sorted(bad.rglob("*")) == before
    assert len(done.err.splitlines()) == 1, done.err
    place = 0
    for word in words.split():
        assert word in done.err[place:], (word, done.err)
        place = done.err.index(word, place)


def test_everything_wrong_is_said_at_once(command, bad, monkeypatch):
    monkeypatch.chdir(bad)
    done = command("compare", "small", "cut", "begun", "no-such")
    assert done.code == 2 and len(done.err.splitlines()) == 3


@pytest.fixture(scope="module")
def taggers(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """Two runs that tag words, of one encoder."""
    place = tmp_path_factory.mktemp("taggers")
    make_encoder(place / "encoder", "bert", tokenizer)
    data = conll(place / "names.conll", tagged(120))
    for name, steps in (("few", 4), ("many", 30)):
        library.finetune(
            model=place / "encoder", data=data, max_steps=steps, batch_size=16, lr=0.01, max_length=32, out=place / name
        )
    return place


def test_models_that_tag_words(command, taggers, runs, monkeypatch):
    monkeypatch.chdir(taggers)
    found = command("compare", "few", "many", "--json").json
    assert (found["metric"], found["baseline"]) == ("f1", "few")
    (apart,) = found["differences"]
    metrics = {name: read(taggers / name / "metrics.json") for name in ("few", "many")}
    few, many = (metrics[name]["metrics"]["f1"] for name in ("few", "many"))
    assert apart["model"] == "many" and apart["value"] == pytest.approx(many - few, abs=2e-4)
    low, high = apart["interval"]
    assert low <= apart["value"] <= high
    assert "f1 minus that of few (paired, 95%):" in command("compare", "few", "many").out
    scored = command("evaluate", "few", "many", "--data", "names.conll", "--split", "test", "--json").json
    assert [one["value"] for one in scored["models"]] == [few, many]
    assert scored["differences"] == found["differences"]
    for job, more in (("compare", ()), ("evaluate", ("--data", "names.conll"))):
        done = command(job, "few", runs / "small", *more)
        assert done.code == 2 and len(done.err.splitlines()) == 1 and "cannot be compared" in done.err, done.err


def test_models_that_generate_text(command, tmp_path, monkeypatch):
    """Their teacher is no run: what is known of it is from the runs of its students."""
    monkeypatch.chdir(tmp_path)
    make_writer(tmp_path / "t5", "t5")
    pairs = write_pairs(tmp_path / "pairs.csv")
    for name, seed in (("one", 1), ("two", 2)):
        more = ("--encoder-layers", 2, "--decoder-layers", 1, "--lr", 0.01, "--seed", seed)
        done = command(*ask("distill", tmp_path / "t5", pairs, tmp_path / name, *more))
        assert done.code == 0, done.err
    found = command("compare", "one", "two", "--metric", "chrf", "--json").json
    teacher, one, two = found["models"]
    metrics = {name: read(tmp_path / name / "metrics.json") for name in ("one", "two")}
    assert (teacher["name"], teacher["layers"], one["layers"]) == ("t5", "4+4", "2+1")
    assert teacher["megabytes"] > one["megabytes"] and teacher["value"] == metrics["one"]["teacher_metrics"]["chrf"]
    assert two["texts_per_second"] == metrics["two"]["texts_per_second"]
    apart = {each["model"]: each["value"] for each in found["differences"]}
    assert apart["two"] == pytest.approx(two["value"] - one["value"], abs=2e-4)
    assert command("compare", "one", "two", "--json").json["metric"] == "bleu"
    assert "texts" in command("compare", "one", "two").out and "latency" not in command("compare", "one", "two").out
    asked = ("evaluate", "one", "two", "--data", pairs, "--split", "test", "--against", "t5")
    scored = command(*asked, "--json").json
    assert [each["value"] for each in scored["models"][1:]] == [metrics[name]["metrics"]["bleu"] for name in metrics]


def test_several_models_are_scored_on_the_same_texts(command, here, monkeypatch):
    asked = ("--data", "reviews.csv", "--split", "test")
    found = command("evaluate", "small", "other", *asked, "--against", "teacher", "--json").json
    known = command("compare", "small", "other", "--json").json
    for key in ("task", "split", "examples", "metric", "baseline", "differences", "summary"):
        assert found[key] == known[key], key
    for ours, theirs in zip(found["models"], known["models"], strict=True):
        for key in ("name", "how", "folder", "layers", "parameters", "megabytes", "value", "interval", "agreement",
                    "train_seconds"):  # fmt: skip
            assert ours[key] == theirs[key], key
        assert ours["latency_ms"] > 0
    alone = command("evaluate", "small", "other", *asked, "--json").json
    assert [one["agreement"] for one in alone["models"]] == [None, None] and alone["baseline"] == "small"
    monkeypatch.setenv("COLUMNS", "120")
    text = command("evaluate", "small", "other", *asked).out
    assert "accuracy minus that of small" in text and "other: none, 1 layer " in text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("small", "other", "--predictions", "p.csv"), "--predictions is for one model"),
        (("small", "other", "--submission", "p"), "--submission is for one model"),
        (("small", "other", "--per-class"), "--per-class is for one model"),
        (("small", "./no-such"), "./no-such: no such folder"),
        (("small", "small"), "small is one model named twice"),
        (("small", "begun"), "begun: this run is not finished"),
    ],
)
def test_several_models_with_what_cannot_be(command, here, more, words):
    done = command("evaluate", *more, "--data", "reviews.csv")
    assert done.code == 2 and len(done.err.splitlines()) == 1 and words in done.err


def test_the_same_from_python(here, reviews, tmp_path):
    found = library.compare(["small", Path("other")], baseline="teacher", metric="f1_macro")
    assert (found.baseline, found.metric, len(found.rows)) == ("teacher", "f1_macro", 3)
    assert [one.model for one in found.differences] == ["small", "other"]
    text = " ".join(repr(found).split())
    assert "small: kd" in text and "cannot be distinguished from zero" in text
    shown = found._repr_html_()
    assert shown.startswith("<table>") and "small: kd, 2 layers" in shown and "minus teacher" in shown
    rows = [dict(row) for row in read_csv(reviews)][:40]
    scored = library.evaluate(["small", "other"], data=rows, against="teacher")
    assert (scored.examples, scored.split, scored.baseline) == (40, None, "small")
    run = library.distill(
        teacher="teacher", data="reviews.csv", method="kd", layers=1, max_steps=2, cache="off", out=tmp_path / "run"
    )
    assert [row["name"] for row in library.compare([run, "small"]).rows] == ["teacher", "run", "small"]
    assert len(library.compare(run).rows) == 2
    for wrong, words in ((([],), "runs is empty"), (([3],), "a run is a int")):
        with pytest.raises(UserError, match=words):
            library.compare(*wrong)
    with pytest.raises(UserError, match="base_line is not a setting"):
        library.compare(["small", "other"], base_line="x")


def test_rows_and_metrics_of_a_run_without_labels(command, here, tmp_path, texts: Callable[..., Any]):
    data = write_csv(tmp_path / "bare.csv", ("text",), [(text,) for text in texts * 3])
    for name, layers in (("one", 1), ("two", 2)):
        asked = ("--unlabelled", "--layers", layers, "--max-steps", 2, *FEW, "--out", tmp_path / name)
        done = command("distill", "--teacher", "teacher", "--data", data, *asked)
        assert done.code == 0, done.err
    found = command("compare", tmp_path / "one", tmp_path / "two", "--json").json
    teacher, one, two = found["models"]
    assert found["metric"] == "agreement" and teacher["value"] is None
    (apart,) = found["differences"]
    assert apart["model"] == "two" and apart["value"] == pytest.approx(two["value"] - one["value"], abs=2e-4)
    done = command("compare", "small", tmp_path / "one")
    assert done.code == 2 and "were scored on different data" in done.err
