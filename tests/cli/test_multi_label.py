"""Several labels per text from files to a student, to its metrics and its predictions."""

from __future__ import annotations

import json
import re

import pyarrow.parquet as pq
import pytest
import torch
from csv_files import read_csv, write_csv
from sklearn.metrics import f1_score
from transformers import AutoModelForSequenceClassification

SMALL = ("--max-steps", 2, "--batch-size", 8)
NAMES = ("funny", "long", "warm")


def sets_of(texts: list[str]) -> list[list[str]]:
    return [
        [name for name, there in zip(NAMES, (i % 2, len(text) > 90, i % 5 == 0), strict=True) if there]
        for i, text in enumerate(texts)
    ]


@pytest.fixture(scope="session")
def lists(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("several") / "lists.jsonl"
    rows = [{"text": text, "labels": some} for text, some in zip(texts, sets_of(texts), strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def teacher(make_bert):
    """A teacher whose labels are in another order than sorted."""
    names = ("warm", "funny", "long")
    return make_bert(
        id2label=dict(enumerate(names)),
        label2id={name: i for i, name in enumerate(names)},
        problem_type="multi_label_classification",
        initializer_range=0.5,
    )


def hot(sets, names=NAMES):
    return [[int(name in some) for name in names] for some in sets]


def test_from_lists_to_predictions(command, make_bert, lists, texts, tmp_path):
    first, out = tmp_path / "teacher", tmp_path / "student"
    done = command("finetune", "--model", make_bert(), "--data", lists, *SMALL, "--lr", 0.01, "--out", first)
    assert done.code == 0, done.err
    assert "any of the labels funny, long, warm" in done.err
    made = json.loads((first / "config.json").read_text())
    assert made["problem_type"] == "multi_label_classification"
    assert made["id2label"] == {"0": "funny", "1": "long", "2": "warm"}
    done = command("distill", "--teacher", first, "--data", lists, "--layers", 1, *SMALL, "--out", out)
    assert done.code == 0, done.err
    found = json.loads((out / "metrics.json").read_text())
    assert list(found["metrics"]) == ["f1_micro", "f1_macro", "accuracy"]
    assert found["teacher_metrics"].keys() == found["intervals"].keys() == found["metrics"].keys()
    assert found["difference"]["metric"] == "f1_micro"
    rows = pq.read_table(out / "predictions.parquet").to_pylist()
    gold, guess = (hot([row[name] for row in rows]) for name in ("label", "prediction"))
    assert found["metrics"]["f1_micro"] == pytest.approx(
        100 * f1_score(gold, guess, average="micro", zero_division=0), abs=1e-3
    )
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert any("f1_micro" in line.get("metrics", {}) for line in log)
    # The plain checkpoint, by transformers alone, trains on the same loss and gives the same probabilities.
    assert 'model="THIS_FOLDER", top_k=None)("some text")' in (out / "README.md").read_text()
    student = AutoModelForSequenceClassification.from_pretrained(out)
    assert student(torch.tensor([[101, 102]]), labels=torch.tensor([[0.0, 1.0, 0.0]])).loss.item() > 0
    done = command("predict", out, "--data", lists, "--out", tmp_path / "new.csv")
    assert done.code == 0, done.err
    answers = read_csv(tmp_path / "new.csv")
    assert [row["text"] for row in answers] == texts
    for row in answers:
        said = [name for name in NAMES if float(row[f"probability_{name}"]) > 0.5]
        assert row["prediction"] == "|".join(said)
    # What was predicted can be read back as labels.
    scored = command(
        "evaluate", out, "--data", tmp_path / "new.csv", "--label", "prediction", "--multi-label", "--json"
    )
    assert scored.code == 0 and scored.json["metrics"]["accuracy"] == 100, scored.err


def test_every_way_to_write_labels_in_the_teachers_order(command, teacher, lists, texts, tmp_path):
    sets = sets_of(texts)
    rows = list(zip(texts, sets, strict=True))
    cells = write_csv(tmp_path / "cells.csv", ("text", "label"), [(text, " ; ".join(some)) for text, some in rows])
    flags = [(text, *row) for text, row in zip(texts, hot(sets), strict=True)]
    columns = write_csv(tmp_path / "columns.csv", ("text", *NAMES), flags)
    ways = (
        (lists, ()),
        (cells, ("--multi-label", "--label-separator", ";")),
        (columns, ("--label", ",".join(NAMES))),
    )
    found = [command("evaluate", teacher, "--data", path, *options, "--json") for path, options in ways]
    assert [done.code for done in found] == [0, 0, 0], [done.err for done in found]
    first = found[0].json["metrics"]
    assert all(done.json["metrics"] == first for done in found)
    command("predict", teacher, "--data", lists, "--out", tmp_path / "p.csv")
    guess = hot([row["prediction"].split("|") for row in read_csv(tmp_path / "p.csv")])
    assert first["f1_micro"] == pytest.approx(100 * f1_score(hot(sets), guess, average="micro"), abs=1e-3)
    # The file's order of names is not the model's: were they taken for each other, the number would be another.
    macro = [100 * f1_score(hot(sets, names), guess, average="macro") for names in (NAMES, NAMES[::-1])]
    assert first["f1_macro"] == pytest.approx(macro[0], abs=1e-3) and abs(macro[0] - macro[1]) > 1


def test_against_a_teacher_with_its_labels_in_another_order(command, teacher, make_bert, lists):
    done = command("evaluate", teacher, "--data", lists, "--against", teacher, "--json")
    assert done.code == 0 and done.json["agreement"] == 100, done.err
    sorted_names = make_bert(
        id2label=dict(enumerate(NAMES)),
        label2id={name: i for i, name in enumerate(NAMES)},
        problem_type="multi_label_classification",
    )
    done = command("evaluate", teacher, "--data", lists, "--against", sorted_names, "--json")
    assert done.code == 0, done.err
    alone = command("evaluate", sorted_names, "--data", lists, "--json")
    assert done.json["teacher_metrics"] == alone.json["metrics"]


def test_names_that_hold_the_separator_are_written_as_lists(command, make_bert, texts, tmp_path):
    model = make_bert(
        id2label={0: "a|b", 1: "c"},
        label2id={"a|b": 0, "c": 1},
        problem_type="multi_label_classification",
        initializer_range=0.5,
    )
    data = write_csv(tmp_path / "in.csv", ("text",), [(text,) for text in texts])
    assert command("predict", model, "--data", data, "--out", tmp_path / "out.csv").code == 0
    rows = read_csv(tmp_path / "out.csv")
    for row in rows:
        said = [name for name in ("a|b", "c") if float(row[f"probability_{name}"]) > 0.5]
        assert json.loads(row["prediction"]) == said
    assert len({row["prediction"] for row in rows}) > 1


def test_a_single_label_file_may_be_read_as_sets(command, make_bert, reviews, tmp_path):
    out = tmp_path / "run"
    done = command("finetune", "--model", make_bert(), "--data", reviews, "--multi-label", *SMALL, "--out", out)
    assert done.code == 0, done.err
    assert "f1_micro" in json.loads((out / "metrics.json").read_text())["metrics"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("distill --teacher {single} --data {lists} --layers 1", "several labels here, the model gives one label"),
        (
            "distill --teacher {several} --data {reviews} --layers 1",
            "model gives several labels per text.*--multi-label",
        ),
        ("distill --teacher {single} --data {reviews} --multi-label --layers 1", "--multi-label: the model gives one"),
        ("distill --teacher {several} --data {lists} --layers 1 --method codir", "codir needs one class per text"),
        ("distill --teacher {several} --data {lists} --layers 2 --method universal-kd", "universal-kd needs one class"),
        ("distill --teacher {several} --task rotten-tomatoes --layers 1", "rotten-tomatoes"),
        ("finetune --model {single} --data {reviews} --label-separator ;", "--label-separator is for labels of"),
        ("finetune --model {single} --data {lists} --regression", "cannot be scores"),
        ("finetune --model {single} --data {reviews} --regression --multi-label", "cannot go with --regression"),
    ],
)
def test_what_does_not_go_together_is_one_line(command, teacher, tiny_teacher, lists, reviews, tmp_path, options, said):
    places = {"single": tiny_teacher, "several": teacher, "lists": lists, "reviews": reviews}
    done = command(*options.format(**places).split(), "--out", tmp_path / "run")
    assert done.code == 2 and not (tmp_path / "run").exists()
    assert done.err.count("\n") == 1, done.err
    assert re.search(said, done.err), done.err


def test_texts_of_a_text_file_are_labelled(command, tiny_teacher, texts, tmp_path):
    (tmp_path / "new.txt").write_text("\n\n".join(texts[:5]) + "\n")
    done = command("predict", tiny_teacher, "--data", tmp_path / "new.txt", "--out", tmp_path / "out.csv")
    assert done.code == 0 and done.out.startswith("5 rows"), done.err
    rows = read_csv(tmp_path / "out.csv")
    assert [row["text"] for row in rows] == texts[:5]
    assert list(rows[0]) == ["text", "prediction", "probability_negative", "probability_positive"]
    done = command("predict", tiny_teacher, "--data", tmp_path / "new.txt", "--out", tmp_path / "out.txt")
    assert done.code == 2 and "no columns to write" in done.err


def test_a_folder_of_shards_trains(command, tiny_teacher, reviews, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    # The rows are sorted by label.
    rows = [(row["text"], row["label"]) for row in read_csv(reviews)]
    rows = rows[::3] + rows[1::3]
    for number in range(2):
        write_csv(data / f"train-{number}-of-2.csv", ("text", "label"), rows[number:80:2])
    write_csv(data / "dev.csv", ("text", "label"), rows[80:100])
    out = tmp_path / "run"
    done = command("distill", "--teacher", tiny_teacher, "--data", data, "--layers", 1, *SMALL, "--out", out)
    assert done.code == 0, done.err
    assert "80 train, 20 dev examples" in done.err


def test_a_text_file_is_enough_to_distil(command, tiny_teacher, texts, tmp_path):
    (tmp_path / "texts.txt").write_text("\n\n".join(texts) + "\n")
    ask = ("distill", "--teacher", tiny_teacher, "--data", tmp_path / "texts.txt", "--layers", 1, *SMALL)
    done = command(*ask, "--out", tmp_path / "run")
    assert done.code == 2 and "use --unlabelled" in done.err
    done = command(*ask, "--unlabelled", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "32 train, 4 dev, 4 test" in done.err
