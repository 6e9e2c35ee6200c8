"""Predictions of runs, read from the files that runs write, have the scores of their runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from stillery.data.readers.writer import write_rows
from stillery.data.schema.examples import Examples, columns_of
from stillery.data.schema.labels import Labels
from stillery.errors import UserError
from stillery.evaluation.entities import TagSet
from stillery.evaluation.entity_metrics import Tagged, tag_scores
from stillery.evaluation.measures import class_measure
from stillery.evaluation.metrics import score
from stillery.evaluation.predictions import write_predictions
from stillery.evaluation.text_metrics import text_scores
from stillery.evaluation.word_predictions import write_tags
from stillery.study.answers import answers, answers_of_function, read_answers
from stillery.study.results import Cell, Results, Row, Task

RANDOM = np.random.default_rng(4)


def written(path: Path, labels: Labels, gold: np.ndarray, logits: np.ndarray) -> Path:
    texts = pa.array([str(row) for row in range(len(gold))], pa.large_string())
    ids = tuple(f"row-{row}" for row in range(len(gold)))
    examples = Examples(ids=ids, columns=columns_of(text=texts, text_pair=None), labels=gold, source="test")
    write_predictions(path, examples, labels, logits)
    return path


@pytest.mark.parametrize(
    ("labels", "metrics"),
    [
        # Sorted by name, yes is the second class; here it is the first, and f1 is of the other.
        (Labels(names=("yes", "no"), regression=False), ("accuracy", "f1", "f1_macro", "matthews")),
        (Labels(names=("c", "a", "b"), regression=False), ("accuracy", "f1_macro", "matthews")),
        (Labels(names=("score",), regression=True), ("pearson", "spearman")),
        (Labels(names=("x", "never", "y"), multi=True), ("f1_micro", "f1_macro", "accuracy")),
    ],
)
def test_scores_are_those_of_the_run(labels: Labels, metrics: tuple[str, ...], tmp_path: Path) -> None:
    size = 50
    logits = RANDOM.normal(size=(size, 1 if labels.regression else labels.count)).astype(np.float32)
    gold = RANDOM.integers(0, labels.count, size)
    if labels.regression:
        gold = RANDOM.normal(size=size).astype(np.float32)
    if labels.multi:
        gold = RANDOM.integers(0, 2, (size, labels.count))
        gold[:, 1], logits[:, 1] = 0, -1
    path = written(tmp_path / "predictions.parquet", labels, gold, logits)
    expected = score(gold, logits, labels, metrics)
    for metric in metrics:
        assert read_answers(path, metric, labels=labels.names).score == pytest.approx(expected[metric], abs=1e-3)


def test_f1_is_of_the_positive_class(tmp_path: Path) -> None:
    labels = Labels(names=("spam", "ham"), regression=False, positive="spam")
    gold, logits = RANDOM.integers(0, 2, 30), RANDOM.normal(size=(30, 2)).astype(np.float32)
    path = written(tmp_path / "predictions.parquet", labels, gold, logits)
    expected = score(gold, logits, labels, ["f1"])["f1"]
    assert read_answers(path, "f1", positive="spam").score == pytest.approx(expected)
    assert read_answers(path, "f1", positive="ham").score != pytest.approx(expected)
    with pytest.raises(UserError, match=r"predictions\.parquet: f1 is of one class"):
        read_answers(path, "f1")


def test_tags(tmp_path: Path) -> None:
    names, lengths = ("O", "B-A", "I-A"), RANDOM.integers(1, 6, 20)
    offsets = np.cumsum([0, *lengths])
    gold, guess = RANDOM.integers(0, 3, (2, offsets[-1]))
    guess[::9] = -1
    tokens = pa.array([["w"] * int(length) for length in lengths])
    path = tmp_path / "predictions.parquet"
    write_tags(path, [str(row) for row in range(20)], tokens, offsets, names, gold=gold, guess=guess)
    expected = tag_scores(Tagged(tags=gold, offsets=offsets, tag_set=TagSet(names=names)), guess, draws=1).metrics
    for metric in ("f1", "accuracy"):
        assert read_answers(path, metric).score == pytest.approx(expected[metric])


def test_texts(tmp_path: Path) -> None:
    outputs, references = ["a cat sat on a mat", "Good", "it"], [["the cat sat on a mat", "a"], ["good"], ["bad"]]
    path = tmp_path / "predictions.parquet"
    with write_rows(path, ["id", "source", "references", "output"]) as writer:
        writer.write({"id": ["1", "2", "3"], "source": ["?"] * 3, "references": references, "output": outputs})
    expected = text_scores(outputs, references, draws=1)
    assert read_answers(path, "bleu").score == pytest.approx(expected.bleu)
    assert read_answers(path, "chrf").score == pytest.approx(expected.chrf)
    # "it" names no label; "a cat sat on a mat" neither.
    assert read_answers(path, "accuracy").score == pytest.approx(100 / 3)
    with pytest.raises(UserError, match="f1_macro of generated texts cannot be computed"):
        read_answers(path, "f1_macro")


def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and no more")
    with pytest.raises(UserError, match=r"broken\.parquet: not readable predictions .*; score the run again"):
        read_answers(broken, "accuracy")
    with pytest.raises(UserError, match=r"none\.parquet: not readable predictions"):
        read_answers(tmp_path / "none.parquet", "accuracy")
    with write_rows(tmp_path / "other.parquet", ["id", "text"]) as writer:
        writer.write({"id": ["1"], "text": ["a"]})
    with pytest.raises(UserError, match=r"other\.parquet: has no columns id, label and prediction"):
        read_answers(tmp_path / "other.parquet", "accuracy")


def test_the_order_of_examples_does_not_matter() -> None:
    gold, guess = RANDOM.integers(0, 2, (2, 20))
    order = RANDOM.permutation(20)
    ids = np.arange(20)
    one = answers(ids, gold, class_measure(gold, guess, "matthews"))
    other = answers(ids[order], gold[order], class_measure(gold[order], guess[order], "matthews"))
    times = RANDOM.integers(0, 3, (5, 20)).astype(float)
    assert one.ids == other.ids
    assert one.labels == other.labels
    assert (one.measure.scores(times) == other.measure.scores(times)).all()
    with pytest.raises(UserError, match="same id"):
        answers([1, 1], [0, 1], class_measure(gold[:2], guess[:2], "accuracy"))


def test_a_metric_of_ones_own() -> None:
    gold, guess = np.array([1.0, 2.0]), np.array([1.0, 4.0])
    found = answers_of_function(["a", "b"], gold, guess, lambda one, other: -float(np.abs(one - other).mean()))
    assert found.score == -1.0


def test_results_are_checked_as_a_whole() -> None:
    gold = np.array([0, 1, 1, 0])
    right = answers(range(4), gold, class_measure(gold, gold, "accuracy"))
    with pytest.raises(UserError) as caught:
        Results(
            tasks=(Task(name="a", metric="accuracy"),),
            rows=(Row(name="kd"), Row(name="kd"), Row(name="big", teacher=True, seeds=(0,))),
            seeds=(0, 1),
            cells={
                ("a", "kd", 0): Cell(score=75.0, answers=right),
                ("a", "kd", 1): Cell(score=float("nan")),
                ("a", "big", 1): Cell(score=1.0),
                ("a", "big", 0): Cell(),
            },
        )
    assert caught.value.lines == (
        "row kd is there 2 times",
        "a, kd, seed 0: its predictions give 100.0000, not the score 75.0000; they are of another run or metric",
        "a, kd, seed 1: the score is nan; a run without a number has failed",
        "a, big, seed 1: no such cell in this study",
        "a, big, seed 0: a cell has either a score or the reason why it has none",
    )
