"""Several labels per text: read from lists, cells and columns, in the model's order, and every bad row named."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import load, load_file, load_to_score

from stillery.data.schema.labels import Labels, infer
from stillery.errors import UserError

ABC = Labels(names=("a", "b", "c"), multi=True)


def csv(path, lines, header="text,label"):
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def jsonl(path, labels):
    path.write_text("".join(json.dumps({"text": f"text {i}", "labels": some}) + "\n" for i, some in enumerate(labels)))
    return path


SETS = [["b"], [], ["a", "c"], ["c"]]
HOT = [[0, 1, 0], [0, 0, 0], [1, 0, 1], [0, 0, 1]]


def test_lists_cells_and_columns_say_the_same(tmp_path):
    ways = [
        (jsonl(tmp_path / "a.jsonl", SETS), {}),
        (csv(tmp_path / "a.csv", [f"t{i}, {' | '.join(some)} " for i, some in enumerate(SETS)]), {"multi_label": True}),
        (
            csv(tmp_path / "b.csv", [f"t{i},{';'.join(some)}" for i, some in enumerate(SETS)]),
            {"multi_label": True, "label_separator": ";"},
        ),
        (
            csv(tmp_path / "c.csv", [f"t{i},{','.join(map(str, row))}" for i, row in enumerate(HOT)], "text,A,b,c"),
            {"label": "a, b,c"},
        ),
        (
            csv(tmp_path / "d.tsv", [f"t{i}\t{json.dumps(some)}" for i, some in enumerate(SETS)], "text\tlabel"),
            {"multi_label": True},
        ),
    ]
    pq.write_table(pa.table({"text": list("wxyz"), "label": SETS}), tmp_path / "a.parquet")
    ways.append((tmp_path / "a.parquet", {}))
    for path, options in ways:
        examples, labels = load_file(path, **options)
        assert labels.multi and labels.kind == "labels", path
        assert [name.lower() for name in labels.names] == ["a", "b", "c"], path
        assert examples.labels.dtype == np.float32
        assert examples.labels.tolist() == HOT, path


def test_columns_keep_the_order_they_are_named_in(tmp_path):
    path = csv(tmp_path / "a.csv", ["x,1,0", "y,0,1", "z,True,false"], "text,b,a")
    examples, labels = load_file(path, label="a,b")
    assert labels == Labels(names=("a", "b"), multi=True)
    assert examples.labels.tolist() == [[0, 1], [1, 0], [0, 1]]


def test_a_label_that_never_occurs_is_no_fault_when_others_differ(tmp_path):
    path = csv(tmp_path / "a.csv", ["x,1,0", "y,0,0"], "text,a,b")
    assert load_file(path, label="a,b")[1].names == ("a", "b")
    with pytest.raises(UserError, match=r"every row has the same labels \(none\)"):
        load_file(csv(tmp_path / "b.csv", ["x,0,0", "y,0,0"], "text,a,b"), label="a,b")


def test_a_column_of_that_whole_name_comes_first(tmp_path):
    path = csv(tmp_path / "a.csv", ["x,p,0,1", "y,q,1,0"], 'text,"a,b",a,b')
    assert load_file(path, label="a,b")[1] == Labels(names=("p", "q"))


def test_the_teachers_order_and_spelling_of_labels(tmp_path):
    teacher = Labels(names=("C", "B", "A"), multi=True)
    examples, labels = load_file(jsonl(tmp_path / "a.jsonl", SETS), labels=teacher)
    assert labels == teacher
    assert examples.labels.tolist() == [row[::-1] for row in HOT]
    # A model without names of its own: the numbers are its outputs.
    numbered = Labels(names=("LABEL_0", "LABEL_1"), multi=True)
    assert load_file(jsonl(tmp_path / "b.jsonl", [[1], [0, 1]]), labels=numbered)[0].labels.tolist() == [[0, 1], [1, 1]]


def test_repeated_and_blank_labels_in_a_cell_count_once(tmp_path):
    path = csv(tmp_path / "a.csv", ["x,b|b | b", "y,|a||", "z,"])
    assert load_file(path, labels=ABC, multi_label=True)[0].labels.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]


def test_one_label_per_text_is_a_set_of_one(tmp_path):
    path = csv(tmp_path / "a.csv", ["x,b", "y,a"])
    examples, labels = load_file(path, multi_label=True)
    assert labels == Labels(names=("a", "b"), multi=True)
    assert examples.labels.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    [
        (["x,a", "y,b|d", "z,d"], {}, r"a.csv, row 2 \(also 3\): the label 'd' is not known; known labels: a, b, c"),
        (["x,a", "y,\"['a', 'b']\""], {}, r"a.csv, row 2: the label \['a', 'b'\] is a list as code writes it"),
        (["x,a", "y,b"], {"multi_label": None}, "a.csv: the model gives several labels per text.*--multi-label"),
        (
            ["x,a", "y,b"],
            {"labels": Labels(names=("a", "b"))},
            "several labels here, the model gives one label per text",
        ),
        (["x,a", "y,b"], {"labels": Labels(regression=True)}, "the model gives a score"),
        (["x,a", "y,b"], {"labels": Labels(names=("a", "b|c"), multi=True)}, r"label 'b\|c' holds the separator '\|'"),
    ],
)
def test_what_does_not_go_together(tmp_path, lines, options, said):
    with pytest.raises(UserError, match=said) as caught:
        load_file(csv(tmp_path / "a.csv", lines), **{"labels": ABC, "multi_label": True} | options)
    assert len(caught.value.lines) == 1


def test_names_that_hold_the_separator_are_whole_in_lists(tmp_path):
    examples, labels = load_file(jsonl(tmp_path / "a.jsonl", [["a|b"], ["a"], []]))
    assert labels.names == ("a", "a|b")
    assert examples.labels.tolist() == [[0, 1], [1, 0], [0, 0]]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([["a"], None, ["b"]], "a.jsonl, row 2: the label is missing.*empty list"),
        ([["a"], ["b", None], ["b"]], "a.jsonl, row 2: the label is missing"),
        ([[0, 1, 0, 1], [1, 0, 0, 0]], "lists of 0 and 1 with a place for each label"),
        ([["a", "b"], ["b", "a"]], r"every row has the same labels \(a, b\)"),
        ([[], []], "no row has a label"),
        ([[f"l{i}", f"m{i}"] for i in range(30)], "60 different labels in 30 rows"),
    ],
)
def test_lists_that_cannot_be_learnt(tmp_path, labels, said):
    with pytest.raises(UserError, match=said):
        load_file(jsonl(tmp_path / "a.jsonl", labels))


@pytest.mark.parametrize("cell", ["2", "", "-1", "yes"])
def test_columns_hold_0_and_1_only(tmp_path, cell):
    path = csv(tmp_path / "a.csv", ["x,0,1", f"y,{cell},0", "z,1,0"], "text,a,b")
    with pytest.raises(UserError, match=r"a.csv, row 2: the label column 'a' .*write 0 or 1"):
        load_file(path, label="a,b")


def test_a_missing_or_repeated_column_is_named(tmp_path):
    path = csv(tmp_path / "a.csv", ["x,0,1"], "text,toxic,threat")
    with pytest.raises(UserError, match=r"no column 'treat' \(--label\); did you mean 'threat'"):
        load_file(path, label="toxic,treat")
    with pytest.raises(UserError, match="twice"):
        load_file(path, label="toxic,Toxic")
    with pytest.raises(UserError, match="multi-label"):
        load_file(path, label="toxic,threat", multi_label=False)


def test_classes_that_look_joined_are_not_guessed_at(tmp_path):
    path = csv(tmp_path / "a.csv", ["x,a", "y,b", "z,a|b"])
    with pytest.raises(UserError, match=r"'a\|b' looks like several.*--multi-label"):
        load_file(path)
    assert load_file(path, multi_label=False)[1] == Labels(names=("a", "a|b", "b"))
    assert load_file(path, multi_label=True)[1] == Labels(names=("a", "b"), multi=True)
    assert infer(["a|x", "b|y"], "a").names == ("a|x", "b|y")
    with pytest.raises(UserError, match=r"row 2: the label \[\"b\"\] is a list; use --multi-label"):
        load_file(csv(tmp_path / "b.csv", ["x,a", 'y,"[""b""]"']))


def test_numbers_are_never_taken_for_names(tmp_path):
    path = csv(tmp_path / "a.csv", ["x,0", "y,1"])
    with pytest.raises(
        UserError,
        match="'0' is not known; known labels: negative, positive; numbers are not names; if that is what they mean, "
        "use --label-map 0=negative,1=positive",
    ):
        load_file(path, labels=Labels(names=("negative", "positive")))


def test_parts_share_their_labels(tmp_path):
    jsonl(tmp_path / "train.jsonl", SETS)
    jsonl(tmp_path / "dev.jsonl", [["c"], []])
    jsonl(tmp_path / "test.jsonl", [["b", "a"]])
    parts = load(tmp_path)
    assert parts.labels == ABC
    assert (parts.dev.labels.tolist(), parts.test.labels.tolist()) == ([[0, 0, 1], [0, 0, 0]], [[1, 1, 0]])
    assert load_to_score(tmp_path, labels=parts.labels).labels.tolist() == [[1, 1, 0]]
    assert parts.train.fingerprint != load(tmp_path, labels=Labels(names=("b", "a", "c"), multi=True)).train.fingerprint
    assert parts.train.take([2, 0]).labels.tolist() == [HOT[2], HOT[0]]
