"""Files and folders become parts; no text is in two of them; bad rows are named."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import load, load_file, load_to_score

from stillery.data.schema.examples import Examples, columns_of, split
from stillery.data.schema.labels import Labels
from stillery.errors import UserError


def csv(path, rows, header="text,label"):
    path.write_text(header + "\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    return path


def rows(count, start=0, labels=("neg", "pos")):
    return [(f"text {start + i}", labels[i % len(labels)]) for i in range(count)]


def examples(texts, pairs=None):
    return Examples(
        ids=tuple(map(str, range(len(texts)))),
        columns=columns_of(
            text=pa.array(texts, pa.large_string()),
            text_pair=None if pairs is None else pa.array(pairs, pa.large_string()),
        ),
        labels=np.arange(len(texts)),
        source="a.csv",
    )


def test_one_file(tmp_path):
    loaded, labels = load_file(csv(tmp_path / "a.csv", rows(3)))
    assert loaded.ids == ("1", "2", "3")
    assert loaded["text"].to_pylist() == ["text 0", "text 1", "text 2"]
    assert loaded.labels.tolist() == [0, 1, 0]
    assert loaded.get("text_pair") is None
    assert labels == Labels(names=("neg", "pos"))
    assert loaded.source == "a.csv"


def test_pairs_ids_and_types_from_parquet(tmp_path):
    table = pa.table(
        {
            "premise": pa.array(["a", "b"]).dictionary_encode(),
            "hypothesis": ["c", "d"],
            "label": [0.5, 1.5],
            "idx": [7, 9],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    loaded, labels = load_file(tmp_path / "a.parquet")
    assert (loaded.ids, loaded["text_pair"].to_pylist()) == (("7", "9"), ["c", "d"])
    assert labels.regression
    assert loaded.labels.dtype == np.float32


def test_labels_are_optional(tmp_path):
    path = csv(tmp_path / "a.csv", [("x",), ("y",)], header="text")
    loaded, labels = load_file(path, need_labels=False)
    assert loaded.labels is None
    assert labels is None
    with pytest.raises(UserError, match="no label column"):
        load_file(path)
    path = csv(tmp_path / "b.csv", rows(4))
    teacher = Labels(names=("good", "bad"))
    assert load_file(path, labels=teacher, need_labels=False)[0].labels is None
    assert load_file(path, label="label", need_labels=False)[0].labels.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("text", ["", '"  "', "NaN", '"\t"', "\u00a0"])
def test_empty_text_in_csv(tmp_path, text):
    path = csv(tmp_path / "a.csv", [*rows(6), (text, "pos"), *rows(3)])
    with pytest.raises(UserError, match=r"a.csv, row 7: the text in column 'text' is empty"):
        load_file(path)


@pytest.mark.parametrize("text", [None, float("nan"), ""])
def test_missing_text_in_json(tmp_path, text):
    lines = [{"text": "a", "label": 1}, {"text": text, "label": 0}, {"label": 0}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(UserError, match=r"a.jsonl, row 2 \(also 3\)"):
        load_file(tmp_path / "a.jsonl")


def test_many_empty_rows_are_counted(tmp_path):
    path = csv(tmp_path / "a.csv", [*rows(2), *[("", "pos")] * 20])
    with pytest.raises(UserError, match=r"row 3 \(also 4, 5, 6, 7 and 15 more\)"):
        load_file(path)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"text": [["a"], ["b"]], "label": [0, 1]}, "not text"),
        ({"text": [1, 2], "label": [0, 1]}, "not text"),
        ({"text": ["a", "b"], "label": [[[0]], [[1]]]}, "cannot be the label"),
        ({"text": [b"a", b"\xff"], "label": [0, 1]}, "not UTF-8"),
        ({"text": ["a", "b", "c"], "label": [0, 1, 1], "id": [5, 6, 5]}, "row 3: the id '5'.*row 1"),
        ({"text": ["a", "b"], "label": [0, 1], "id": ["x", None]}, "row 2: no value in the id column"),
    ],
)
def test_columns_that_cannot_be_used(tmp_path, table, said):
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=said):
        load_file(tmp_path / "a.parquet")


def test_take_and_fingerprint():
    whole = examples(["a", "b", "c"], ["d", "e", "f"])
    part = whole.take([2, 0])
    assert (part.ids, part["text"].to_pylist(), part["text_pair"].to_pylist()) == (("2", "0"), ["c", "a"], ["f", "d"])
    assert part.labels.tolist() == [2, 0]
    assert len(part) == 2
    assert whole.fingerprint == examples(["a", "b", "c"], ["d", "e", "f"]).fingerprint
    sliced = examples(["x", "a", "b", "c"])
    same = Examples(ids=("0", "1", "2"), columns={"text": sliced["text"].slice(1)}, labels=np.arange(3), source="b")
    assert same.fingerprint == examples(["a", "b", "c"]).fingerprint
    others = [["ab", "", "c"], ["a", "b", "d"], ["a", "b"], []]
    assert len({examples(texts).fingerprint for texts in others} | {whole.fingerprint, part.fingerprint}) == 6


def test_a_file_is_split(tmp_path):
    parts = load(csv(tmp_path / "a.csv", rows(100)))
    assert (len(parts.train), len(parts.dev), len(parts.test)) == (80, 10, 10)
    assert "split" in parts.note
    assert parts.source == "a.csv"
    again = load_to_score(tmp_path / "a.csv", split="test", labels=parts.labels)
    assert again.fingerprint == parts.test.fingerprint
    assert len(load_to_score(tmp_path / "a.csv", labels=parts.labels)) == 100
    with pytest.raises(UserError, match="did you mean 'test'"):
        load_to_score(tmp_path / "a.csv", split="tst", labels=parts.labels)


@pytest.mark.parametrize("dev", ["dev.csv", "validation.csv", "valid.csv", "val.csv"])
def test_a_folder_with_all_parts(tmp_path, dev):
    csv(tmp_path / "train.csv", rows(10))
    csv(tmp_path / dev, rows(4))
    csv(tmp_path / "test.csv", rows(6))
    parts = load(tmp_path)
    assert (len(parts.train), len(parts.dev), len(parts.test), parts.note) == (10, 4, 6, "")
    assert len(load_to_score(tmp_path, labels=parts.labels)) == 6
    assert len(load_to_score(tmp_path, split="dev", labels=parts.labels)) == 4
    (tmp_path / "test.csv").unlink()
    assert load(tmp_path).test is None
    assert len(load_to_score(tmp_path, labels=parts.labels)) == 4
    with pytest.raises(UserError, match="no test split"):
        load_to_score(tmp_path, split="test", labels=parts.labels)


def test_a_folder_without_dev_holds_some_out(tmp_path):
    csv(tmp_path / "train.csv", rows(50))
    parts = load(tmp_path)
    assert (len(parts.train), len(parts.dev), parts.test) == (45, 5, None)
    assert "held out" in parts.note
    scored = [load_to_score(tmp_path, split=part, labels=parts.labels).fingerprint for part in ("train", "dev")]
    assert scored == [parts.train.fingerprint, parts.dev.fingerprint]


def test_a_test_file_without_labels_is_left_out(tmp_path):
    csv(tmp_path / "train.csv", rows(20))
    csv(tmp_path / "dev.csv", rows(4))
    csv(tmp_path / "test.csv", [("x",)], header="text")
    parts = load(tmp_path)
    assert parts.test is None
    assert "test.csv has no labels" in parts.note


def test_bad_folders(tmp_path):
    with pytest.raises(UserError, match="no train file"):
        load(tmp_path)
    csv(tmp_path / "train.csv", rows(10))
    (tmp_path / "train.jsonl").write_text("{}")
    with pytest.raises(UserError, match=r"more than one train file \(train.csv, train.jsonl\)"):
        load(tmp_path)


def test_faults_of_all_parts_come_together(tmp_path):
    csv(tmp_path / "train.csv", [*rows(10), ("", "pos")])
    csv(tmp_path / "dev.csv", [("a", "pos"), ("b", "pos", "c")])
    with pytest.raises(UserError) as caught:
        load(tmp_path)
    assert len(caught.value.lines) == 2
    csv(tmp_path / "train.csv", rows(10))
    csv(tmp_path / "dev.csv", [("a", "pos"), ("b", "new")])
    with pytest.raises(UserError, match=r"dev.csv, row 2: the label 'new' is not known; known labels: neg, pos"):
        load(tmp_path)


def test_a_teachers_labels_are_used_everywhere(tmp_path):
    teacher = Labels(names=("pos", "neutral", "neg"))
    csv(tmp_path / "train.csv", rows(10))
    csv(tmp_path / "dev.csv", rows(2))
    parts = load(tmp_path, labels=teacher)
    assert parts.labels == teacher
    assert parts.dev.labels.tolist() == [2, 0]
    csv(tmp_path / "train.csv", rows(10, labels=("pos",)))
    with pytest.raises(UserError, match="same class"):
        load(tmp_path, labels=teacher)


texts = st.lists(st.sampled_from([f"{a} {b}" for a in "aAbBcCdD" for b in ("x", " X", "y", "z\n")]), min_size=12)


@settings(max_examples=60, deadline=None)
@given(texts, st.integers(0, 5), st.randoms(use_true_random=False))
def test_split_keeps_texts_together_whatever_the_row_order(texts, seed, random):
    normal = [" ".join(text.casefold().split()) for text in texts]
    whole = examples(texts)
    if len(set(normal)) < 3:
        with pytest.raises(UserError, match="too few"):
            split(whole, seed=seed)
        return
    parts = split(whole, seed=seed)
    assert sorted(row for part in parts for row in part.ids) == sorted(whole.ids)
    assert all(len(part) for part in parts)
    said = [{normal[int(row)] for row in part.ids} for part in parts]
    assert sum(map(len, said)) == len(set.union(*said))
    order = list(range(len(texts)))
    random.shuffle(order)
    assert [set(part.ids) for part in split(whole.take(order), seed=seed)] == [set(part.ids) for part in parts]


def test_split_sizes_and_seeds():
    whole = examples([f"text {i}" for i in range(1000)])
    assert [len(part) for part in split(whole)] == [800, 100, 100]
    assert [len(part) for part in split(whole, (0.9, 0.1))] == [900, 100]
    assert split(whole, seed=1)[0].ids != split(whole)[0].ids
    assert [len(part) for part in split(examples(list("abc")))] == [1, 1, 1]
    pairs = examples(["same"] * 10, [str(i) for i in range(10)])
    assert [len(part) for part in split(pairs)] == [8, 1, 1]
