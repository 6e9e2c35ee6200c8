"""Labels keep their names, numbers become scores, and every bad label is named with its row."""

import numpy as np
import pytest
from transformers import BertConfig

from stillery.data.schema.labels import Labels, encode, infer
from stillery.errors import UserError


def test_names_are_kept_and_sorted():
    labels = infer(["pos", "neg", " pos "], "a.csv")
    assert labels == Labels(names=("neg", "pos"))
    assert (labels.count, labels.regression) == (2, False)
    assert labels.id2label == {0: "neg", 1: "pos"}
    assert labels.label2id == {"neg": 0, "pos": 1}
    assert encode(["pos", "neg"], labels, "a.csv").tolist() == [1, 0]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([10, 9, 1], ("1", "9", "10")),
        (["10", "9", "1"], ("1", "9", "10")),
        ([1.0, 0.0, 1], ("0", "1")),
        (["1.0", "0.0"], ("0", "1")),
        ([True, False], ("False", "True")),
        (["007", "7"], ("007", "7")),
        (np.array([3, 1]), ("1", "3")),
        (["-1", "0", "b"], ("-1", "0", "b")),
    ],
)
def test_values_that_mean_the_same_class(values, names):
    assert infer(values, "a").names == names


def test_regression_is_seen_through_a_bad_row():
    values = ["1.5", "2", "3.25", "oops", "4"]
    labels = infer(values, "a.csv")
    assert labels.regression
    assert labels.count == 1
    with pytest.raises(UserError, match=r"a.csv, row 4: the label 'oops' is not a finite number"):
        encode(values, labels, "a.csv")
    assert encode(["1.5", 2, 3.25], labels, "a").dtype == np.float32


def test_whole_numbers_are_scores_only_when_asked():
    assert not infer([1, 2, 3], "a").regression
    assert infer([1, 2, 3], "a", regression=True).regression
    assert not infer(["1.5", "2.5", "1.5"], "a", regression=False).regression


@pytest.mark.parametrize("bad", [None, "", float("nan"), float("inf"), "inf", "nan", "x", True, 1e300])
def test_scores_must_be_finite_numbers(bad):
    with pytest.raises(UserError, match=r"a.csv, row 2"):
        encode([1.0, bad, 2.0], Labels(regression=True), "a.csv")


@pytest.mark.parametrize("bad", [None, "", "  ", float("nan")])
def test_missing_classes(bad):
    with pytest.raises(UserError, match=r"a.csv, row 3: the label is missing"):
        encode(["x", "y", bad], infer(["x", "y", bad], "a.csv"), "a.csv")


def test_unseen_class_names_row_and_known_names():
    with pytest.raises(UserError, match=r"dev.csv, row 2 \(also 4\): the label 'z' is not known; known labels: x, y"):
        encode(["x", "z", "y", "z"], Labels(names=("x", "y")), "dev.csv")
    with pytest.raises(UserError) as caught:
        encode([f"new{i}" for i in range(30)], Labels(names=("x", "y")), "dev.csv")
    assert len(caught.value.lines) == 6
    assert "25 more" in caught.value.lines[-1]


def test_names_may_differ_in_case_when_that_is_not_ambiguous():
    assert encode(["positive"], Labels(names=("NEGATIVE", "POSITIVE")), "a").tolist() == [1]
    with pytest.raises(UserError):
        encode(["POS"], Labels(names=("Pos", "pos")), "a")


def test_default_names_are_indices():
    labels = Labels.of_model(BertConfig(num_labels=3))
    assert labels.names == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert encode([2, "1.0", "LABEL_0"], labels, "a").tolist() == [2, 1, 0]
    with pytest.raises(UserError, match="row 1"):
        encode([3], labels, "a")
    with pytest.raises(UserError):
        encode([0], Labels(names=("x", "y")), "a")


def test_labels_of_a_model():
    assert Labels.of_model(BertConfig(num_labels=1)) == infer([1.5, 2], "a")
    assert Labels.of_model(BertConfig(num_labels=1, problem_type="regression")).regression
    named = BertConfig(id2label={1: "b", 0: "a"}, label2id={"a": 0, "b": 1})
    assert Labels.of_model(named).names == ("a", "b")
    several = BertConfig(num_labels=1, problem_type="multi_label_classification")
    assert Labels.of_model(several) == Labels(names=("LABEL_0",), multi=True)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["x"] * 5, "same class"),
        ([1.5] * 5, "same score"),
        ([None, ""], "no row has a label"),
        (list(range(40)), "--regression"),
        ([f"text {i}" for i in range(40)], "--label"),
        ([i % 1001 for i in range(5000)], "1001 different values"),
    ],
)
def test_labels_that_cannot_be_learnt(values, said):
    with pytest.raises(UserError, match=said):
        infer(values, "a.csv")
