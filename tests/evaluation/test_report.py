from __future__ import annotations

import json
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from stillery.data.schema.labels import Labels
from stillery.evaluation.report import evaluation
from stillery.evaluation.table import table

TWO = Labels(names=("no", "yes"), regression=False)
GOLD = np.array([0, 1, 1, 0, 1, 1])
STUDENT = np.eye(2)[[0, 1, 0, 0, 1, 0]]
TEACHER = np.eye(2)[[0, 1, 1, 0, 1, 0]]


def shown(rows: list[dict[str, object]], width: int = 160) -> list[str]:
    paper = StringIO()
    Console(width=width, file=paper).print(table(rows, width))
    return paper.getvalue().splitlines()


def test_shape_of_an_evaluation_alone() -> None:
    found = evaluation("reviews", GOLD, STUDENT, TWO)
    assert list(found) == ["task", "examples", "metrics", "intervals", "per_class"]
    assert (found["task"], found["examples"]) == ("reviews", 6)
    assert found["metrics"] == {"accuracy": 66.6667, "f1_macro": 66.6667}
    # Wilson, 4 of 6: (p + z^2/2n +- z sqrt(pq/n + z^2/4n^2)) / (1 + z^2/n) with z = 1.959964
    assert found["intervals"]["accuracy"] == [29.9993, 90.3229]
    # Of the two that are no, both are found; of the four that are yes two, and two are called no.
    assert found["per_class"] == {
        "no": {"precision": 50.0, "recall": 100.0, "f1": 66.6667, "examples": 2},
        "yes": {"precision": 100.0, "recall": 50.0, "f1": 66.6667, "examples": 4},
    }
    assert json.loads(json.dumps(found)) == found


def test_classes_that_no_example_has_are_named() -> None:
    three = Labels(names=("no", "yes", "perhaps"))
    found = evaluation("reviews", GOLD, np.eye(3)[[0, 2, 0, 0, 1, 0]], three)
    assert found["absent_classes"] == ["perhaps"] and found["per_class"]["perhaps"]["examples"] == 0
    assert found["absent_note"] == (
        "no example of perhaps: f1_macro counts it as 0 where it is predicted, and else leaves it out"
    )
    # As it says: predicted once, it is one of three classes; else there are two.
    assert found["metrics"]["f1_macro"] == pytest.approx(
        sum(one["f1"] for one in found["per_class"].values()) / 3, abs=1e-3
    )
    without = evaluation("reviews", GOLD, np.eye(3)[[0, 1, 0, 0, 1, 0]], three)
    assert without["metrics"]["f1_macro"] == evaluation("reviews", GOLD, STUDENT, TWO)["metrics"]["f1_macro"]
    several = Labels(names=("a", "b", "c"), multi=True)
    sets = evaluation("sets", np.array([[1, 0, 0], [0, 0, 0]]), np.array([[1.0, -1, -1], [-1, 1, -1]]), several)
    assert sets["absent_classes"] == ["b", "c"]
    assert sets["absent_note"] == "no example of b, c: f1_macro counts them as 0"
    assert sets["metrics"]["f1_macro"] == pytest.approx(100 / 3, abs=1e-3)
    assert sets["per_class"]["a"] == {"precision": 100.0, "recall": 100.0, "f1": 100.0, "examples": 1}


def test_shape_of_an_evaluation_against_a_teacher() -> None:
    found = evaluation("reviews", GOLD, STUDENT, TWO, TEACHER, ["f1", "accuracy"])
    assert list(found["metrics"]) == list(found["intervals"]) == list(found["teacher_metrics"]) == ["f1", "accuracy"]
    assert found["teacher_metrics"]["accuracy"] == 83.3333
    assert found["agreement"] == 83.3333
    assert found["difference"]["metric"] == "f1"
    assert found["difference"]["value"] == pytest.approx(
        found["metrics"]["f1"] - found["teacher_metrics"]["f1"], abs=1e-3
    )
    low, high = found["difference"]["interval"]
    assert low <= found["difference"]["value"] <= high <= 0
    assert json.loads(json.dumps(found)) == found
    assert found == evaluation("reviews", GOLD, STUDENT, TWO, TEACHER, ["f1", "accuracy"])


def test_shape_of_a_regression() -> None:
    labels = Labels(names=("score",), regression=True)
    gold = np.arange(8, dtype=np.float32)
    logits = gold[:, None] + np.array([[0.5], [-0.5]] * 4, dtype=np.float32)
    found = evaluation("similarity", gold, logits, labels, logits)
    assert list(found["metrics"]) == ["pearson", "spearman"]
    assert found["agreement"] == 100
    assert found["difference"] == {"metric": "pearson", "value": 0, "interval": [0, 0]}
    assert json.loads(json.dumps(found)) == found


def test_table_of_models() -> None:
    teacher = {
        "name": "teacher [base]",
        "layers": 6,
        "parameters": 22_713_986,
        "megabytes": 90.86,
        "metric": "accuracy",
        "value": 85.04,
        "interval": [82.8, 87.1],
        "agreement": None,
        "latency_ms": 5.25,
        "train_seconds": 61.4,
    }
    lines = shown([teacher, {"name": "student", "metric": "accuracy", "value": 80.0}], width=80)
    assert "accuracy" in lines[0]
    expected = ["teacher [base]", "6", "22.7M", "90.9 MB", "85.0 (82.8-87.1)", "-", "5.2 ms", "61 s"]
    assert " ".join(lines[3].split()) == " ".join(expected)
    assert lines[4].split() == ["student", "-", "-", "-", "80.0", "-", "-", "-"]


def test_table_of_different_metrics_names_each() -> None:
    lines = shown([{"name": "a", "metric": "accuracy", "value": 1.0}, {"name": "b", "metric": "pearson", "value": 2.0}])
    assert "accuracy 1.0" in lines[3]
    assert "pearson 2.0" in lines[4]


def test_no_number_is_cut_in_a_narrow_terminal() -> None:
    row = {
        "name": "layer-all-to-one",
        "layers": 24,
        "parameters": 355_400_000,
        "megabytes": 1421.5,
        "latency_ms": 105.2,
    }
    row |= {"metric": "accuracy", "value": 100.0, "interval": [99.9, 100.0], "agreement": 100.0, "train_seconds": 10131}
    text = " ".join(shown([row], width=80))
    for number in ("24", "355.4M", "1421.5 MB", "100.0 (99.9-100.0)", "100.0%", "105.2 ms", "10131 s"):
        assert number in text
