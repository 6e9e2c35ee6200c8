"""Data as people have it, through the command line: encodings, empty rows, label names, rare classes, few dev rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from csv_files import read_csv, write_csv
from text_models import SHORT, SMALL, make_writer

QUICK = ("--max-steps", 2, "--batch-size", 8)
NAMES = ("negative", "positive")


@pytest.fixture
def rows(texts: list[str]) -> list[tuple[str, str]]:
    return [(text, NAMES[row % 2]) for row, text in enumerate(texts)]


def metrics_of(run: Path) -> dict:
    return json.loads((run / "metrics.json").read_text())


def settings_of(run: Path) -> str:
    return (run / "run.toml").read_text()


# Files.


def test_a_run_on_semicolons_in_latin_1(command, make_bert, rows, tmp_path):
    data = tmp_path / "in.csv"
    lines = ['"{}";{}'.format(f"{text} déjà".replace('"', '""'), label) for text, label in rows]
    data.write_bytes(("text;label\n" + "\n".join(lines)).encode("latin-1"))
    asked = ("finetune", "--model", make_bert(), "--data", data, *QUICK)
    done = command(*asked, "--out", tmp_path / "no")
    assert done.code == 2 and "use --encoding latin-1" in done.err and not (tmp_path / "no").exists()
    done = command(*asked, "--encoding", "latin-1", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert 'encoding = "latin-1"' in settings_of(tmp_path / "run") and metrics_of(tmp_path / "run")["examples"] == 4
    found = ("--data", data, "--encoding", "latin-1")
    done = command("evaluate", tmp_path / "run", *found, "--split", "test", "--json")
    assert done.json["metrics"] == metrics_of(tmp_path / "run")["metrics"]
    done = command("predict", tmp_path / "run", *found, "--out", tmp_path / "out.csv")
    assert done.code == 0, done.err
    assert [row["text"] for row in read_csv(tmp_path / "out.csv")] == [f"{text} déjà" for text, _ in rows]
    again = command("finetune", "--config", tmp_path / "run" / "run.toml", "--out", tmp_path / "again")
    assert again.code == 0 and metrics_of(tmp_path / "again")["metrics"] == metrics_of(tmp_path / "run")["metrics"]


def test_empty_rows_are_left_out_everywhere_when_asked(command, tiny_teacher, rows, tmp_path):
    gaps = [*rows[:6], ("", "positive"), ("a text without a label", ""), *rows[6:]]
    data = write_csv(tmp_path / "in.csv", ("text", "label"), gaps)
    asked = ("distill", "--teacher", tiny_teacher, "--data", data, "--layers", 1, *QUICK)
    done = command(*asked, "--out", tmp_path / "no")
    assert done.code == 2
    assert [line.partition(": ")[2].partition(";")[0] for line in done.err.splitlines()] == [
        "in.csv, row 7: the text in column 'text' is empty",
        "in.csv, row 8: the label is missing",
    ]
    done = command(*asked, "--skip-empty", "--out", tmp_path / "run")
    assert done.code == 0 and "2 of 42 rows of in.csv are empty and left out" in done.err
    assert "skip_empty = true" in settings_of(tmp_path / "run")
    done = command("evaluate", tmp_path / "run", "--data", data, "--skip-empty", "--json")
    assert done.json["examples"] == 40 and "2 of 42 rows" in done.err
    done = command("predict", tmp_path / "run", "--data", data, "--out", tmp_path / "no.csv")
    assert done.code == 2 and "in.csv, row 7: the text in column 'text' is empty" in done.err
    done = command("predict", tmp_path / "run", "--data", data, "--skip-empty", "--out", tmp_path / "out.csv")
    assert done.code == 0 and "1 of 42 rows of in.csv are empty and left out" in done.err
    written = read_csv(tmp_path / "out.csv")
    assert [row["text"] for row in written] == [text for text, _ in gaps if text]
    assert "41 rows written" in done.out


def test_a_text_model_learns_conversations(command, tmp_path):
    model = make_writer(tmp_path / "gpt2", "gpt2", layers=2)
    chats = [
        {"messages": [{"role": "user", "content": f"w{row} w{row + 1}"}, {"role": "assistant", "content": f"w{row}"}]}
        for row in range(40)
    ]
    data = tmp_path / "chat.jsonl"
    data.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    asked = ("finetune", "--model", model, "--data", data, *SMALL, *SHORT, "--out", tmp_path / "run")
    done = command(*asked)
    assert done.code == 0, done.err
    assert "chat.jsonl, 32 train, 4 dev, 4 test examples" in done.err
    done = command("predict", tmp_path / "run", "--data", data, "--out", tmp_path / "out.jsonl", "--beams", 1)
    assert done.code == 0, done.err
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["messages"] for row in written] == [chat["messages"] for chat in chats]
    assert all(set(row) == {"messages", "output"} for row in written)
    for option in (("--label-map", "a=b"), ("--class-weights", "balanced"), ("--metric", "accuracy")):
        done = command(*asked[:-1], tmp_path / "no", *option)
        assert done.code == 2 and f"{option[0]} is for classifiers" in done.err


# Labels.


def test_lists_with_commas_are_asked_about(command, make_bert, texts, tmp_path):
    kinds = ("funny", "sad", "funny,sad", "sad, funny")
    rows = [(text, kinds[row % 4]) for row, text in enumerate(texts)]
    data = write_csv(tmp_path / "in.csv", ("text", "label"), rows)
    asked = ("finetune", "--model", make_bert(), "--data", data, *QUICK, "--out", tmp_path / "run")
    done = command(*asked)
    assert done.code == 2 and done.out == ""
    assert done.err.splitlines() == [
        "stillery: in.csv: the label 'funny,sad' looks like several of the other labels; use --multi-label "
        "--label-separator ',' if it is, or --no-multi-label if it is a class of its own"
    ]
    done = command(*asked, "--multi-label")
    assert done.code == 2 and "use --label-separator ',' if it is, or --label-separator '|'" in done.err
    done = command(*asked, "--multi-label", "--label-separator", ",")
    assert done.code == 0 and "any of the labels funny, sad" in done.err
    done = command(*asked[:-1], tmp_path / "own", "--no-multi-label")
    assert done.code == 0 and "labels funny, funny,sad, sad, sad, funny" in done.err


def test_commas_within_names_are_no_lists(command, make_bert, texts, tmp_path):
    towns = ("Paris, France", "Lyon, France", "Berlin, Germany")
    data = write_csv(tmp_path / "in.csv", ("text", "label"), [(text, towns[row % 3]) for row, text in enumerate(texts)])
    done = command("finetune", "--model", make_bert(), "--data", data, *QUICK, "--out", tmp_path / "run")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("names", "theirs", "suggested"),
    [
        (("0", "1"), NAMES, "0=negative,1=positive"),
        (("neg", "pos"), NAMES, "neg=negative,pos=positive"),
        (("bad", "good"), ("LABEL_0", "LABEL_1"), "bad=0,good=1"),
    ],
)
def test_the_labels_of_data_and_teacher_are_brought_together(
    command, make_bert, texts, tmp_path, names: Sequence[str], theirs: Sequence[str], suggested: str
):
    teacher = make_bert(id2label=dict(enumerate(theirs)), label2id={name: row for row, name in enumerate(theirs)})
    rows = [(text, names[row % 2]) for row, text in enumerate(texts)]
    data = write_csv(tmp_path / "in.csv", ("text", "label"), rows)
    asked = ("distill", "--teacher", teacher, "--data", data, "--layers", 1, *QUICK)
    done = command(*asked, "--out", tmp_path / "no")
    assert done.code == 2 and f"if that is what they mean, use --label-map {suggested}" in done.err
    done = command(*asked, "--label-map", suggested, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert f'label_map = "{suggested}"' in settings_of(tmp_path / "run")
    same = write_csv(tmp_path / "same.csv", ("text", "label"), [(text, theirs[row % 2]) for row, (text, _) in
                                                                enumerate(rows)])  # fmt: skip
    expected = command("evaluate", teacher, "--data", same, "--json").json["metrics"]
    found = command("evaluate", teacher, "--data", data, "--label-map", suggested, "--json").json["metrics"]
    swapped = ",".join(
        f"{name}={value}" for name, value in zip(names, suggested.replace(",", "=").split("=")[3::-2], strict=True)
    )
    assert found == expected
    other = command("evaluate", teacher, "--data", data, "--label-map", swapped, "--json").json["metrics"]
    assert other["accuracy"] == pytest.approx(100 - found["accuracy"])


def test_a_new_models_labels_are_renamed_and_merged(command, make_bert, texts, tmp_path):
    rows = [(text, str(row % 3)) for row, text in enumerate(texts)]
    data = write_csv(tmp_path / "in.csv", ("text", "label"), rows)
    asked = ("finetune", "--model", make_bert(), "--data", data, *QUICK, "--out", tmp_path / "run")
    done = command(*asked, "--label-map", "0=bad,1=bad,2=good")
    assert done.code == 0 and "labels bad, good" in done.err
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["id2label"] == {"0": "bad", "1": "good"}
    counts = {name: found["examples"] for name, found in metrics_of(tmp_path / "run")["per_class"].items()}
    assert sum(counts.values()) == 4 and set(counts) == {"bad", "good"}


# Rare classes.


@pytest.fixture
def rare(texts: list[str], tmp_path: Path) -> Path:
    """A folder with three classes, one of them rare, and a test split that lacks it."""
    folder = tmp_path / "rare"
    folder.mkdir()
    named = [(text, "rare" if row % 10 == 0 else ("often", "usual")[row % 2]) for row, text in enumerate(texts)]
    write_csv(folder / "train.csv", ("text", "label"), named)
    write_csv(folder / "dev.csv", ("text", "label"), named[:20])
    write_csv(folder / "test.csv", ("text", "label"), [row for row in named if row[1] != "rare"][:12])
    return folder


def test_classes_one_by_one_and_the_metric_that_decides(command, make_bert, rare, tmp_path):
    run = tmp_path / "run"
    asked = ("finetune", "--model", make_bert(), "--data", rare, *QUICK, "--eval-every", 1)
    done = command(*asked, "--metric", "f1_macro", "--out", run)
    assert done.code == 0, done.err
    found = metrics_of(run)
    assert next(iter(found["metrics"])) == "f1_macro" and next(iter(found["training"]["dev_best"])) == "f1_macro"
    assert set(found["metrics"]) == {"f1_macro", "accuracy"} and 'metric = "f1_macro"' in settings_of(run)
    dev = [json.loads(line)["metrics"]["f1_macro"] for line in (run / "log.jsonl").read_text().splitlines()
           if '"dev"' in line]  # fmt: skip
    assert found["training"]["dev_best"]["f1_macro"] == max(dev) and len(dev) == 2
    assert found["absent_classes"] == ["rare"] and found["per_class"]["rare"]["examples"] == 0
    assert sum(one["examples"] for one in found["per_class"].values()) == found["examples"] == 12
    assert "no example of rare: f1_macro counts it as 0 where it is predicted, and else leaves it out" in done.out
    done = command("evaluate", run, "--data", rare, "--split", "dev", "--per-class")
    lines = done.out.splitlines()
    table = lines[next(row for row, line in enumerate(lines) if line.split()[:1] == ["class"]) :][:4]
    assert table[0].split() == ["class", "precision", "recall", "f1", "examples"]
    assert [line.split()[0] for line in table[1:]] == ["usual", "often", "rare"] and "no example of" not in done.out
    done = command(*asked, "--metric", "f1_marco", "--out", tmp_path / "no")
    assert done.code == 2 and "unknown metric 'f1_marco'; did you mean 'f1_macro'" in done.err
    done = command(*asked, "--metric", "pearson", "--out", tmp_path / "no")
    assert done.code == 2 and "metric 'pearson' is not defined for classification" in done.err


def test_precision_recall_and_f1_are_those_of_the_predictions(command, make_bert, rare, tmp_path):
    import pyarrow.parquet as pq
    from sklearn.metrics import classification_report

    run = tmp_path / "run"
    assert command("finetune", "--model", make_bert(), "--data", rare, *QUICK, "--out", run).code == 0
    rows = pq.read_table(run / "predictions.parquet").to_pylist()
    gold, guess = [row["label"] for row in rows], [row["prediction"] for row in rows]
    names = ["often", "rare", "usual"]
    report = classification_report(gold, guess, labels=names, output_dict=True, zero_division=0)
    for name, found in metrics_of(run)["per_class"].items():
        for metric, theirs in {"precision": "precision", "recall": "recall", "f1": "f1-score"}.items():
            assert found[metric] == pytest.approx(100 * report[name][theirs], abs=1e-3)
        assert found["examples"] == report[name]["support"]


def test_balanced_classes(command, make_bert, tiny_teacher, rare, scores, reviews, tmp_path):
    asked = ("finetune", "--model", make_bert(), "--max-steps", 6, "--batch-size", 8, "--lr", 1e-2, "--keep", "last")
    plain = (*asked, "--data", rare)
    assert command(*plain, "--out", tmp_path / "plain").code == 0
    done = command(*plain, "--class-weights", "balanced", "--out", tmp_path / "balanced")
    assert done.code == 0 and 'class_weights = "balanced"' in settings_of(tmp_path / "balanced")

    def mass(run: str) -> float:
        """The mean probability of the rare class."""
        path = tmp_path / f"{run}.csv"
        command("predict", tmp_path / run, "--data", rare / "train.csv", "--out", path)
        return float(np.mean([float(row["probability_rare"]) for row in read_csv(path)]))

    assert mass("balanced") > mass("plain") + 0.05
    done = command(*asked, "--data", scores, "--class-weights", "balanced", "--out", tmp_path / "no")
    assert done.code == 2 and "--class-weights is for one class per text, and the labels are scores" in done.err
    distill = ("distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 1, "--class-weights", "balanced")
    done = command(*distill, "--unlabelled", "--out", tmp_path / "no")
    assert done.code == 2 and "--class-weights" in done.err
    done = command(*distill, "--method", "kd", "--hard-weight", 0, "--out", tmp_path / "no")
    assert done.code == 2 and "does not learn from labels here" in done.err
    done = command(*distill, "--class-weights", "mine", "--out", tmp_path / "no")
    assert done.code == 2 and "--class-weights is 'mine': choose from balanced" in done.err


def test_a_split_of_a_row_is_warned_about(command, make_bert, texts, tmp_path):
    for count, said in (
        (6, "warning: dev has 1 example and test has 1 example: scores on so few say little"),
        (40, ""),
    ):
        rows = [(text, NAMES[row % 2]) for row, text in enumerate(texts[:count])]
        folder = tmp_path / str(count)
        folder.mkdir()
        write_csv(folder / "train.csv", ("text", "label"), rows)
        write_csv(folder / "dev.csv", ("text", "label"), rows[: 1 if said else 12])
        write_csv(folder / "test.csv", ("text", "label"), rows[: 1 if said else 12])
        done = command("finetune", "--model", make_bert(), "--data", folder, *QUICK, "--out", tmp_path / f"run{count}")
        assert done.code == 0, done.err
        assert (said in " ".join(done.err.split())) if said else "say little" not in done.err


# Scores while training.


def _scores(metrics: dict) -> list:
    return [metrics["metrics"], metrics["training"]["dev_best"], metrics["training"]["dev_last"]]


def test_some_dev_examples_are_scored_while_training_and_all_at_the_end(command, tiny_teacher, rows, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    write_csv(folder / "train.csv", ("text", "label"), rows)
    write_csv(folder / "dev.csv", ("text", "label"), rows[:30])
    asked = ("distill", "--teacher", tiny_teacher, "--data", folder, "--layers", 1, *QUICK, "--eval-every", 1)
    run = tmp_path / "few"
    done = command(*asked, "--dev-samples", 7, "--verbose", "--out", run)
    assert done.code == 0 and "7 of 30 examples are scored while training, all of them at the end" in done.err
    found = metrics_of(run)
    assert found["examples"] == 30 and found["split"] == "dev" and found["training"]["dev_samples"] == 7
    # A share of seven is no share of thirty.
    assert (found["training"]["dev_last"]["accuracy"] * 7 / 100) == pytest.approx(
        round(found["training"]["dev_last"]["accuracy"] * 7 / 100)
    )
    assert command(*asked, "--dev-samples", 7, "--out", tmp_path / "same").code == 0
    assert metrics_of(tmp_path / "same")["training"]["dev_best"] == found["training"]["dev_best"]
    assert command(*asked, "--dev-samples", 30, "--out", tmp_path / "whole").code == 0
    assert command(*asked, "--out", tmp_path / "all").code == 0
    whole, everything = metrics_of(tmp_path / "whole"), metrics_of(tmp_path / "all")
    assert _scores(whole) == _scores(everything) and "dev_samples" not in whole["training"]
    # What is scored says nothing to training.
    assert found["training"]["steps"] == everything["training"]["steps"]
    done = command(*asked, "--dev-samples", 0, "--out", tmp_path / "no")
    assert done.code == 2 and "--dev-samples is 0: it must be at least 1" in done.err
