"""Metrics of texts with several labels, by hand and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import accuracy_score, f1_score

from stillery.data.schema.labels import Labels
from stillery.errors import UserError
from stillery.evaluation.metrics import (
    agreement,
    difference,
    interval,
    main_metric,
    majority_collapse,
    predicted,
    score,
)
from stillery.evaluation.predictions import probabilities, write_predictions
from stillery.evaluation.report import evaluation

THREE = Labels(names=("a", "b", "c"), multi=True)
ONE = Labels(names=("spam",), multi=True)


def outputs(sets) -> np.ndarray:
    """Logits that say yes where there is a 1."""
    return (np.asarray(sets, dtype=np.float32) * 2 - 1) * 3


def drawn(count: int, seed: int = 0, labels: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    gold = (random.random((count, labels)) < 0.3).astype(np.float32)
    return gold, np.where(random.random((count, labels)) < 0.8, gold, 1 - gold)


def test_values_computed_by_hand() -> None:
    gold = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]], dtype=np.float32)
    logits = outputs([[1, 0, 0], [0, 0, 0], [1, 1, 0]])
    found = score(gold, logits, THREE)
    assert list(found) == ["f1_micro", "f1_macro", "accuracy"]
    # 2 hits, 3 there, 3 predicted; a: 1 of 1 and 2, b: 1 of 1 and 1, c: 0 of 1 and 0; only the empty set is whole.
    assert found["f1_micro"] == pytest.approx(100 * 2 * 2 / 6)
    assert found["f1_macro"] == pytest.approx(100 * (2 / 3 + 1 + 0) / 3)
    assert found["accuracy"] == pytest.approx(100 / 3)
    assert main_metric(THREE) == "f1_micro"


@pytest.mark.parametrize("labels", [THREE, ONE])
@pytest.mark.parametrize("seed", range(3))
def test_against_scikit_learn(labels: Labels, seed: int) -> None:
    gold, guess = drawn(40, seed, labels.count)
    # A label that never occurs counts as 0 in the mean over labels, here as there.
    gold[:, 0], guess[:, 0] = (0, 0) if labels.count > 1 else (gold[:, 0], guess[:, 0])
    found = score(gold, outputs(guess), labels)
    if labels.count > 1:
        assert found["f1_micro"] == pytest.approx(100 * f1_score(gold, guess, average="micro"))
        assert found["f1_macro"] == pytest.approx(100 * f1_score(gold, guess, average="macro", zero_division=0))
    else:
        # scikit-learn takes a single column for two classes; of the one label there is only its own f1.
        own = 100 * f1_score(gold[:, 0], guess[:, 0])
        assert (found["f1_micro"], found["f1_macro"]) == (pytest.approx(own), pytest.approx(own))
    assert found["accuracy"] == pytest.approx(100 * accuracy_score(gold, guess))


def test_one_half_is_not_enough_and_each_label_is_decided_by_itself() -> None:
    logits = np.array([[0.0, 0.1, -0.1], [5.0, 5.0, 5.0]])
    assert predicted(logits, THREE).tolist() == [[0, 1, 0], [1, 1, 1]]
    np.testing.assert_allclose(probabilities(logits, THREE)[0], [0.5, 0.52497919, 0.47502081], atol=1e-6)


@pytest.mark.parametrize("metric", ["f1_micro", "f1_macro", "accuracy"])
def test_intervals_hold_the_value_and_narrow(metric: str) -> None:
    gold, guess = drawn(1500)
    value = score(gold, outputs(guess), THREE, [metric])[metric]
    low, high = interval(gold, outputs(guess), THREE, metric)
    few_low, few_high = interval(gold[:80], outputs(guess[:80]), THREE, metric)
    assert low < value < high and high - low < (few_high - few_low) / 2
    assert (low, high) == interval(gold, outputs(guess), THREE, metric)


def test_the_interval_of_whole_sets_is_that_of_a_bootstrap_too() -> None:
    gold, guess = drawn(1000)
    logits = outputs(guess)
    low, high = interval(gold, logits, THREE, "accuracy")
    _, (resampled_low, resampled_high) = difference(gold, logits, outputs(1 - gold), THREE, "accuracy")
    # Against a model that is never right, the difference is the metric itself.
    assert (low, high) == (pytest.approx(resampled_low, abs=1), pytest.approx(resampled_high, abs=1))


def test_agreement_counts_decisions_and_collapse_whole_sets() -> None:
    student, teacher = outputs([[1, 0, 0], [1, 1, 0]]), outputs([[1, 0, 1], [1, 1, 0]])
    assert agreement(student, teacher, THREE) == pytest.approx(100 * 5 / 6)
    assert majority_collapse(outputs([[1, 0, 0]] * 3), THREE)
    assert majority_collapse(outputs([[0, 0, 0]] * 3), THREE)
    assert not majority_collapse(outputs([[1, 0, 0], [0, 0, 0]]), THREE)


def test_a_model_is_as_good_as_itself() -> None:
    gold, guess = drawn(50)
    found = evaluation("task", gold, outputs(guess), THREE, outputs(guess))
    assert found["examples"] == 50 and found["agreement"] == 100
    assert found["difference"] == {"metric": "f1_micro", "value": 0, "interval": [0, 0]}


@pytest.mark.parametrize(("metric", "line"), [("f1", "not defined for several labels"), ("f1_mikro", "'f1_micro'")])
def test_wrong_metrics_are_faults(metric: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        score(np.zeros((2, 3)), np.zeros((2, 3)), THREE, [metric])


def test_the_file_of_predictions_has_lists_of_names(tmp_path, made) -> None:
    gold = np.array([[1, 0, 1], [0, 0, 0]], dtype=np.float32)
    examples = made(["x", "y"], labels=gold)
    write_predictions(tmp_path / "p.parquet", examples, THREE, outputs([[0, 1, 0], [1, 1, 1]]), outputs(gold))
    rows = pq.read_table(tmp_path / "p.parquet").to_pylist()
    assert [row["label"] for row in rows] == [["a", "c"], []]
    assert [row["prediction"] for row in rows] == [["b"], ["a", "b", "c"]]
    assert [row["teacher_prediction"] for row in rows] == [["a", "c"], []]
    assert sum(rows[1]["probabilities"]) > 2
    write_predictions(tmp_path / "q.parquet", made(["x"]), THREE, outputs([[0, 1, 0]]))
    assert pq.read_table(tmp_path / "q.parquet")["label"].to_pylist() == [None]
