"""Cross-encoders on pairs of query and document: `--query` in every command that trains, scores or compares."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from csv_files import read_csv, write_csv
from sklearn.metrics import ndcg_score

from stillery.data.schema.answer_labels import classification
from stillery.data.schema.load_splits import load
from stillery.study.answers import read_answers

Command = Callable[..., Any]
Make = Callable[..., Path]

HEADER = ("qid", "query", "document", "label")
SHORT = ("--max-length", 24, "--max-steps", 2, "--batch-size", 8)


@pytest.fixture(scope="session")
def pairs(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten queries of 4 documents with grades 0 to 2, one of a single document, and one with no relevant document."""
    rows = [
        (query, texts[query], texts[10 + (3 * query + document) % 30], (query + document) % 3)
        for query in range(10)
        for document in range(4)
    ]
    rows += [(10, texts[10], texts[11], 1), (11, texts[12], texts[13], 0), (11, texts[12], texts[14], 0)]
    folder = tmp_path_factory.mktemp("pairs")
    for name in ("train", "dev"):
        write_csv(folder / f"{name}.csv", HEADER, rows)
    return folder


@pytest.fixture(scope="session")
def teacher(make_bert: Make) -> Path:
    return make_bert(num_labels=1, problem_type="regression", initializer_range=0.4)


def test_from_fine_tuning_to_a_comparison(
    pairs: Path, teacher: Path, make_bert: Make, command: Command, tmp_path: Path
) -> None:
    common = ("--data", pairs, "--query", "qid", *SHORT)
    tuned, small = tmp_path / "tuned", tmp_path / "small"
    done = command("finetune", "--model", make_bert(), *common, "--out", tuned)
    assert done.code == 0, done.err
    assert "10 of 12 queries ranked by score; left out: 1 with one document, 1 with no relevant document" in done.out
    done = command("distill", "--teacher", tuned, *common, "--layers", 1, "--metric", "mrr", "--out", small)
    assert done.code == 0, done.err
    assert "--query qid" in done.out, "the next commands name the column"
    found = json.loads((small / "metrics.json").read_text())
    assert list(found["metrics"]) == ["mrr", "ndcg@10", "map", "pearson", "spearman"]
    assert found["metrics"].keys() == found["intervals"].keys() == found["teacher_metrics"].keys()
    assert found["queries"] == {"all": 12, "ranked": 10, "one_document": 1, "no_relevant": 1, "one_grade": 0}
    assert next(iter(found["training"]["dev_best"])) == "mrr" and found["difference"]["metric"] == "mrr"
    # What is recorded gives the same scores, to scikit-learn and to a study.
    rows = pq.read_table(small / "predictions.parquet").to_pylist()
    of_query = [[row for row in rows if row["query"] == str(query)] for query in range(10)]
    ndcg = [
        ndcg_score([[one["grade"] for one in some]], [[one["relevance"] for one in some]], k=10) for some in of_query
    ]
    assert found["metrics"]["ndcg@10"] == pytest.approx(1000 * sum(ndcg) / 100, abs=1e-3)
    for metric in ("mrr", "ndcg@10", "pearson"):
        assert read_answers(small / "predictions.parquet", metric).score == pytest.approx(
            found["metrics"][metric], abs=1e-3
        )
    # Scored again, and compared from the folders alone.
    done = command("evaluate", small, "--data", pairs / "dev.csv", "--query", "qid", "--against", tuned, "--json")
    assert done.code == 0, done.err
    assert done.json["metrics"] == {name: found["metrics"][name] for name in done.json["metrics"]}
    done = command("compare", small, "--metric", "ndcg@10", "--json")
    assert done.code == 0, done.err
    (difference,) = done.json["differences"]
    expected = found["teacher_metrics"]["ndcg@10"] - found["metrics"]["ndcg@10"]
    assert difference["value"] == pytest.approx(expected, abs=1e-3)
    low, high = difference["interval"]
    assert low <= difference["value"] <= high
    done = command("diagnose", small)
    assert done.code == 0, done.err
    done = command("predict", small, "--data", pairs / "dev.csv", "--out", tmp_path / "scored.csv")
    assert done.code == 0, done.err
    assert [float(row["prediction"]) for row in read_csv(tmp_path / "scored.csv")] == pytest.approx(
        [row["prediction"] for row in rows], abs=1e-5
    )


def test_a_query_is_never_in_two_splits(pairs: Path) -> None:
    splits = load(pairs / "train.csv", classification(query="qid"))
    of_split = [set(one["query"].to_pylist()) for one in (splits.train, splits.dev, splits.test) if one is not None]
    assert sum(map(len, of_split)) == len(set.union(*of_split)) == 12
    # The text itself may be the query; ids and texts group alike.
    named = load(pairs / "train.csv", classification(query="query"))
    assert named.train["text"].to_pylist()[0] == named.train["query"].to_pylist()[0]
    assert len(named.train["query"].unique()) == len(named.train["text"].unique())


def test_a_sample_of_dev_holds_whole_queries(pairs: Path, teacher: Path, command: Command, tmp_path: Path) -> None:
    done = command(
        "distill", "--teacher", teacher, "--data", pairs, "--query", "qid", *SHORT, "--layers", 1, "--dev-samples", 10,
        "--holdout", 0.4, "--verbose", "--out", tmp_path / "run",
    )  # fmt: skip
    assert done.code == 0, done.err
    sampled = re.search(r"dev: (\d+) of (\d+) examples are scored while training", done.err)
    assert sampled is not None and 10 <= int(sampled[1]) < 14 and int(sampled[2]) > 14, done.err
    held = json.loads((tmp_path / "run" / "conditions.json").read_text())["holdout"]["ids"]
    query_of = {str(place): row["qid"] for place, row in enumerate(read_csv(pairs / "train.csv"), 1)}
    queries = {query_of[row] for row in held}
    assert 1 < len(queries) < 12 and set(held) == {row for row, query in query_of.items() if query in queries}


def test_a_cross_encoder_of_one_logit(make_bert: Make, pairs: Path, command: Command, tmp_path: Path) -> None:
    """As sentence-transformers saves them: one label, no problem type, labels of 0 and 1 in training."""
    model = make_bert(num_labels=1, sentence_transformers={"activation_fn": "torch.nn.modules.activation.Sigmoid"})
    rows = [{**row, "label": min(int(row["label"]), 1)} for row in read_csv(pairs / "train.csv")]
    for name in ("train", "dev"):
        write_csv(tmp_path / f"{name}.csv", HEADER, [tuple(row[one] for one in HEADER) for row in rows])
    common = ("distill", "--teacher", model, "--data", tmp_path, "--query", "query", *SHORT, "--layers", 1)
    done = command(*common, "--method", "kd", "--out", tmp_path / "run")
    assert done.code == 2 and len(done.err.strip().splitlines()) == 1 and not (tmp_path / "run").exists()
    assert "gives a logit" in done.err and "--hard-weight 0" in done.err
    done = command(*common, "--method", "kd", "--hard-weight", 0, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert found["ranked_by"] == "score" and found["queries"]["ranked"] == 10


def test_a_teacher_of_two_classes(make_bert: Make, pairs: Path, command: Command, tmp_path: Path) -> None:
    names = {"id2label": {0: "other", 1: "relevant"}, "label2id": {"other": 0, "relevant": 1}}
    model = make_bert(**names, initializer_range=0.4)
    rows = [{**row, "label": "relevant" if row["label"] != "0" else "other"} for row in read_csv(pairs / "train.csv")]
    path = write_csv(tmp_path / "pairs.csv", HEADER, [tuple(row[one] for one in HEADER) for row in rows])
    done = command("evaluate", model, "--data", path, "--query", "query", "--json")
    assert done.code == 0, done.err
    assert done.json["ranked_by"] == "class relevant"
    assert list(done.json["metrics"]) == ["ndcg@10", "mrr", "map", "accuracy", "f1_macro"]
    # Accuracy is of pairs that come in queries, and has the wider interval of those.
    plain = command("evaluate", model, "--data", path, "--json").json
    assert plain["metrics"]["accuracy"] == done.json["metrics"]["accuracy"]
    assert plain["intervals"]["accuracy"] != done.json["intervals"]["accuracy"]


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({}, ("--query", "qidd"), "no column 'qidd' (--query); did you mean 'qid'?"),
        ({"label": -1}, ("--query", "qid"), "a label is -1, and grades of relevance are 0 or above"),
        ({"label": 1}, ("--query", "qid"), "in none of the 12 queries do documents differ in their label"),
        ({"qid": ""}, ("--query", "qid"), "the query in column 'qid' is empty; fill it in"),
        ({}, ("--query", "label"), "--query and --label both name the column 'label'"),
        ({}, ("--query", "qid", "--no-regression"), "the model predicts a number; leave the option out"),
        ({}, ("--metric", "mrr"), "metric 'mrr' ranks the documents of a query: name the column"),
    ],
)  # fmt: skip
def test_slips_are_one_line(
    change: dict[str, object], options: tuple[str, ...], said: str, pairs: Path, teacher: Path, command: Command,
    tmp_path: Path,
) -> None:  # fmt: skip
    rows = read_csv(pairs / "train.csv")
    for row in rows[:1] if change.keys() != {"label"} or change["label"] == -1 else rows:
        row |= {name: str(value) for name, value in change.items()}
    for name in ("train", "dev"):
        write_csv(tmp_path / f"{name}.csv", HEADER, [tuple(row[one] for one in HEADER) for row in rows])
    if change.get("label") == 1:
        # Train needs labels that differ.
        write_csv(
            tmp_path / "train.csv", HEADER, [tuple(row[one] for one in HEADER) for row in read_csv(pairs / "train.csv")]
        )
    done = command(
        "distill", "--teacher", teacher, "--data", tmp_path, *options, "--label", "label", "--layers", 1,
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert done.code == 2 and said in done.err, done.err
    assert not (tmp_path / "run").exists()


def test_more_than_two_classes_are_not_ranked(pairs: Path, make_bert: Make, command: Command, tmp_path: Path) -> None:
    common = ("finetune", "--model", make_bert(), "--data", pairs, "--query", "qid", *SHORT)
    done = command(*common, "--no-regression", "--out", tmp_path / "run")
    assert done.code == 2 and "ranked by a score or by one of two classes, and there are 3 classes" in done.err
    done = command(
        "finetune", "--model", make_bert(), "--task", "rotten-tomatoes", "--query", "x", "--out", tmp_path / "run"
    )
    assert done.code == 2 and "--query cannot go with --task" in done.err
