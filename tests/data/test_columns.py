"""Columns are found by their usual names, and a missing one is a line that says what there is."""

import pytest
from reading import label_columns

from stillery.errors import UserError


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["text", "label"], ("text", None, "label")),
        (["Label", "TEXT"], ("TEXT", None, "Label")),
        (["sentence1", "sentence2", "label"], ("sentence1", "sentence2", "label")),
        (["premise", "hypothesis", "gold_label"], ("premise", "hypothesis", "gold_label")),
        (["sentence", "question", "label"], ("question", "sentence", "label")),
        (["question1", "question2", "target"], ("question1", "question2", "target")),
        # A second text without its partner is no pair.
        (["review", "sentence2", "rating"], ("review", None, "rating")),
        (["text", "hypothesis", "label", "rating"], ("text", None, "label")),
        (["text", "text2", "class"], ("text", "text2", "class")),
    ],
)
def test_usual_names(names, expected):
    found = label_columns(names, "a.csv")
    assert tuple(map(found.get, ("text", "text_pair", "label"))) == expected


def test_asking_for_columns():
    names = ["idx", "a", "b", "text", "label", "sentence1", "sentence2"]
    found = label_columns(names, "a.csv", text="a", label="B")
    assert (*map(found.get, ("text", "text_pair", "label")), found.id) == ("a", None, "b", "idx")
    assert label_columns(names, "a.csv", text="a", text_pair="b").get("text_pair") == "b"
    assert label_columns(names, "a.csv", text_pair="sentence2").get("text") == "sentence1"
    assert label_columns(names, "a.csv", text_pair="b").get("text") == "text"


def test_the_column_of_the_label_is_no_text():
    found = label_columns(["question", "answer"], "a.csv", label="answer")
    assert found.names == {"text": "question", "label": "answer"}
    assert label_columns(["text", "content", "label"], "a.csv", label="text")["text"] == "content"
    assert label_columns(["target", "score"], "a.csv", text="target")["label"] == "score"
    with pytest.raises(UserError, match="--text and --label both name the column 'a'; give two columns"):
        label_columns(["a", "b"], "a.csv", text="a", label="A")
    with pytest.raises(UserError, match="no text column; the columns are 'text'"):
        label_columns(["text"], "a.csv", label="text")


def test_all_missing_columns_are_reported_together():
    with pytest.raises(UserError) as caught:
        label_columns(["foo", "bar"], "a.csv")
    assert len(caught.value.lines) == 2
    assert "'foo', 'bar'" in caught.value.lines[0]
    assert "--text" in caught.value.lines[0]
    assert "--label" in caught.value.lines[1]


def test_hints():
    with pytest.raises(UserError, match="did you mean 'review_body'"):
        label_columns(["review_body", "label"], "a.csv", text="reviewbody")
    with pytest.raises(UserError, match="commas"):
        label_columns(["text;label"], "a.csv")
    with pytest.raises(UserError, match="both name"):
        label_columns(["text", "label"], "a.csv", text="text", text_pair="text")


def test_label_is_optional_when_not_needed():
    assert label_columns(["text"], "a.csv", need=False).get("label") is None
    assert label_columns(["text", "label"], "a.csv", need=False).get("label") == "label"
