"""Files of sources and targets become parts; no source is in two of them; bad rows are named."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import load_generation, load_generation_to_score, load_sources, target_columns

from stillery.data.schema.answer_texts import expanded, references_of
from stillery.data.schema.examples import Examples, columns_of, split
from stillery.errors import UserError


def jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def pairs(count, start=0):
    return [{"source": f"question {start + i}", "target": f"answer {start + i}"} for i in range(count)]


def examples(sources, targets=None, references=None):
    return Examples(
        ids=tuple(f"e{row}" for row in range(len(sources))),
        columns=columns_of(
            source=pa.array(sources, pa.large_string()),
            target=None if targets is None else pa.array(targets, pa.large_string()),
            references=None if references is None else pa.array(references, pa.list_(pa.large_string())),
        ),
        source="a.jsonl",
    )


def folder(tmp_path, **parts):
    for part, rows in parts.items():
        jsonl(tmp_path / f"{part}.jsonl", rows)
    return tmp_path


@pytest.mark.parametrize(
    ("names", "source", "target"),
    [
        (("src", "tgt"), "src", "tgt"),
        (("id", "Document", "Summary"), "Document", "Summary"),
        (("question", "answer"), "question", "answer"),
        (("prompt", "completion"), "prompt", "completion"),
        (("text", "target"), "text", "target"),
        (("en", "de", "idx"), "en", "de"),
        (("de", "input", "output", "en"), "input", "output"),
    ],
)
def test_columns_by_their_names(names, source, target):
    found = target_columns(names, "a.csv")
    assert (found["source"], found["target"]) == (source, target)


def test_columns_asked_for_and_their_faults():
    names = ("title", "body", "text", "target")
    found = target_columns(names, "a.csv", "body", "TITLE")
    assert (found["source"], found["target"]) == ("body", "title")
    assert target_columns(names, "a.csv", target="text", source="title")["source"] == "title"
    # The source is never the column that is named as the target.
    assert target_columns(("text", "prompt"), "a.csv", target="text")["source"] == "prompt"
    with pytest.raises(UserError) as error:
        target_columns(names, "a.csv", "bdy", "titel")
    assert len(error.value.lines) == 2 and "did you mean 'body'" in error.value.lines[0]
    for wrong, said in (
        ({"source": "text", "target": "text"}, "both name the column 'text'"),
        ({"source": "target"}, "no target column"),
    ):
        with pytest.raises(UserError, match=said):
            target_columns(names, "a.csv", **wrong)
    with pytest.raises(UserError, match="could be translated to de, fr; name one with --target"):
        target_columns(("en", "de", "fr"), "a.csv")
    with pytest.raises(UserError, match="no source column; the columns are 'a', 'b'; name one with --source"):
        target_columns(("a", "b"), "a.csv")
    with pytest.raises(UserError, match="the separator looks like ';'"):
        target_columns(("source;target",), "a.csv")


def test_a_folder_with_parts(tmp_path):
    parts = load_generation(folder(tmp_path, train=pairs(6), validation=pairs(2, 10), test=pairs(3, 20)))
    assert (len(parts.train), len(parts.dev), len(parts.test)) == (6, 2, 3)
    assert parts.train["source"][5].as_py() == "question 5" and parts.train["target"][5].as_py() == "answer 5"
    assert "references" not in parts.train.columns and parts.train.ids == tuple("123456")
    assert parts.source == tmp_path.name and parts.test.source == "test.jsonl"
    assert str(parts.train["source"].type) == str(parts.train["target"].type) == "large_string"


def test_other_parts_mean_the_same_by_their_columns(tmp_path):
    odd = [{"question": "q", "target": "t", "source": "other"}]
    folder(tmp_path, train=[{"question": f"q{i}", "target": f"t{i}"} for i in range(3)], dev=odd)
    assert load_generation(tmp_path).dev["source"].to_pylist() == ["q"]


def test_shards_and_ids(tmp_path):
    for number in (1, 2):
        jsonl(tmp_path / f"train-{number}.jsonl", pairs(2, 10 * number))
    jsonl(tmp_path / "dev.jsonl", pairs(1))
    assert load_generation(tmp_path).train.ids == ("train-1-1", "train-1-2", "train-2-1", "train-2-2")
    for number in (1, 2):
        jsonl(tmp_path / f"train-{number}.jsonl", [{"id": "same"} | row for row in pairs(1, number)])
    with pytest.raises(
        UserError, match=r"train-2.jsonl, row 1: the id 'same' in column 'id' is already that of train-1"
    ):
        load_generation(tmp_path)
    jsonl(tmp_path / "train-2.jsonl", [{"id": "x", "source": "a", "target": ["b"]}])
    with pytest.raises(UserError, match=r"train-2.jsonl: its targets are lists, those of train-1.jsonl are not"):
        load_generation(tmp_path)
    jsonl(tmp_path / "train-2.jsonl", [{"id": "x", "src": "a", "target": "b"}])
    with pytest.raises(UserError, match=r"its columns \(source 'src', .*not those of train-1.jsonl \(source 'source'"):
        load_generation(tmp_path)


def test_one_file_is_split_by_its_sources(tmp_path):
    rows = [*pairs(40), *({"source": f" QUESTION  {i}", "target": "another"} for i in range(40))]
    parts = load_generation(jsonl(tmp_path / "a.jsonl", rows))
    assert parts.note.startswith("a.jsonl is split by its texts: 64 train")
    texts = [set(some["source"].to_pylist()) for some in (parts.train, parts.dev, parts.test)]
    words = [{" ".join(text.casefold().split()) for text in some} for some in texts]
    assert sum(map(len, words)) == len(set.union(*words)) == 40
    assert sum(len(some) for some in (parts.train, parts.dev, parts.test)) == 80
    shuffled = load_generation(jsonl(tmp_path / "a.jsonl", rows[::-1]))
    assert set(shuffled.dev["source"].to_pylist()) == texts[1]
    for part in ("train", "dev", "test"):
        scored = load_generation_to_score(tmp_path / "a.jsonl", split=part)
        assert scored.fingerprint == getattr(shuffled, part).fingerprint
    assert len(load_generation_to_score(tmp_path / "a.jsonl")) == 80


def test_a_tenth_of_train_is_held_out_where_dev_is_missing(tmp_path):
    folder(tmp_path, train=pairs(20), test=pairs(2, 50))
    parts = load_generation(tmp_path)
    assert (len(parts.train), len(parts.dev), len(parts.test)) == (18, 2, 2)
    assert not set(parts.train.ids) & set(parts.dev.ids)
    assert "no dev file: 2 of the train rows" in parts.note
    assert load_generation_to_score(tmp_path, split="dev").ids == parts.dev.ids
    assert load_generation_to_score(tmp_path, split="train").ids == parts.train.ids
    assert load_generation_to_score(tmp_path).ids == parts.test.ids


MANY = [
    {"id": "a", "source": "one", "references": ["first", "second"]},
    {"id": "a-2", "source": "two", "references": ["third"]},
    {"id": "b", "source": "three", "references": ["x", "y", "z"]},
]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_several_references(tmp_path, suffix):
    for part in ("train", "dev", "test"):
        if suffix == "jsonl":
            jsonl(tmp_path / f"{part}.jsonl", MANY)
        else:
            pq.write_table(pa.Table.from_pylist(MANY), tmp_path / f"{part}.parquet")
    parts = load_generation(tmp_path)
    assert parts.train.ids == ("a#1", "a#2", "a-2#1", "b#1", "b#2", "b#3")
    assert parts.train["source"].to_pylist() == ["one", "one", "two", "three", "three", "three"]
    assert parts.train["target"].to_pylist() == ["first", "second", "third", "x", "y", "z"]
    assert "references" not in parts.train.columns
    assert parts.dev.ids == ("a", "a-2", "b") and parts.dev["target"].to_pylist() == ["first", "third", "x"]
    assert references_of(parts.test) == [["first", "second"], ["third"], ["x", "y", "z"]]
    assert references_of(load_generation_to_score(tmp_path, split="train")) == references_of(parts.test)


def test_references_stay_with_their_source_when_a_file_is_split(tmp_path):
    rows = [{"source": f"s{i}", "target": [f"{i}a", f"{i}b"]} for i in range(30)]
    parts = load_generation(jsonl(tmp_path / "a.jsonl", rows))
    assert (len(parts.train), len(parts.dev), len(parts.test)) == (48, 3, 3)
    for source, right in zip(parts.dev["source"].to_pylist(), references_of(parts.dev), strict=True):
        assert right == [f"{source[1:]}a", f"{source[1:]}b"]
    trained = set(parts.train["source"].to_pylist())
    assert not trained & {*parts.dev["source"].to_pylist(), *parts.test["source"].to_pylist()}


@pytest.mark.parametrize("wrong", [None, "", "  ", [], ["fine", ""], ["fine", None], [None]])
def test_empty_targets_are_named_by_file_and_row(tmp_path, wrong):
    several = isinstance(wrong, list)
    rows = [{"source": f"s{i}", "target": ["t"] if several else "t"} for i in range(12)]
    rows[6]["target"] = rows[8]["target"] = wrong
    with pytest.raises(UserError, match=r"a.jsonl, row 7 \(also 9\): the target in column 'target' is empty"):
        load_generation(jsonl(tmp_path / "a.jsonl", rows))
    with pytest.raises(UserError, match=r"a.jsonl, row 7 \(also 9\): the target in column 'target' is empty"):
        load_generation_to_score(tmp_path / "a.jsonl")


@pytest.mark.parametrize("need_targets", [True, False])
def test_an_empty_target_in_the_second_of_two_files_that_are_split(tmp_path, need_targets):
    rows = pairs(40)
    jsonl(tmp_path / "a.jsonl", rows[:20])
    jsonl(tmp_path / "b.jsonl", rows[20:])
    held = load_generation(tmp_path).dev.ids
    row = next(int(name.removeprefix("b-")) for name in held if name.startswith("b-") and f"a-{name[2:]}" not in held)
    rows[20 + row - 1]["target"] = ""
    jsonl(tmp_path / "b.jsonl", rows[20:])
    with pytest.raises(UserError) as error:
        load_generation(tmp_path, need_targets=need_targets)
    (line,) = error.value.lines
    assert line.startswith(f"b.jsonl, row {row}: the target in column 'target' is empty")


def test_faults_of_sources_columns_and_parts_are_reported_together(tmp_path):
    folder(tmp_path, train=[{"source": " ", "target": "t"}, *pairs(3)], dev=[{"source": "s"}])
    with pytest.raises(UserError) as error:
        load_generation(tmp_path)
    assert (
        "train.jsonl, row 1: the source in column 'source' is empty; fill it in or remove the row, or leave such rows "
        "out with --skip-empty" in error.value.lines
    )
    assert any(line.startswith("dev.jsonl: no target column") for line in error.value.lines)
    folder(tmp_path, train=[{"source": 1, "target": "t"}], dev=pairs(1))
    with pytest.raises(
        UserError, match=r"train.jsonl, row 1: column 'source' holds int64 values, not text; .*--source"
    ):
        load_generation(tmp_path)
    folder(tmp_path, train=[{"source": "s", "target": [1, 2]}], dev=pairs(1))
    with pytest.raises(UserError, match=r"train.jsonl, row 1: column 'target' holds list<.*int64>, not lists of texts"):
        load_generation(tmp_path)
    with pytest.raises(UserError, match="no split 'tets'; did you mean 'test'"):
        load_generation_to_score(tmp_path, split="tets")
    with pytest.raises(UserError, match="there is no test split"):
        load_generation_to_score(tmp_path, split="test")


def test_a_test_part_without_targets_is_left_out(tmp_path):
    parts = load_generation(folder(tmp_path, train=pairs(3), dev=pairs(2, 5), test=[{"source": "only"}]))
    assert parts.test is None and "test.jsonl has no targets and is left out" in parts.note


def test_without_need_of_targets_those_of_train_are_never_read(tmp_path):
    train = [{"source": f"s{i}", "target": "" if i % 2 else 7} for i in range(4)]
    parts = load_generation(folder(tmp_path, train=train, dev=pairs(2), test=[{"source": "x"}]), need_targets=False)
    assert parts.train.get("target") is None and len(parts.train) == 4
    assert parts.dev["target"].to_pylist() == ["answer 0", "answer 1"] and parts.test.get("target") is None
    with pytest.raises(UserError, match=r"no column 'gold' \(--target\)"):
        load_generation(tmp_path, target="gold", need_targets=False)
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"text {i}\n" for i in range(10)))
    parts = load_generation(lines, need_targets=False)
    assert "target" not in parts.train.columns and "target" not in parts.dev.columns and len(parts.train) == 8
    assert load_sources(lines)["source"].to_pylist()[9] == "text 9"
    with pytest.raises(UserError, match=r"lines.txt: no target column"):
        load_generation(lines)
    with pytest.raises(UserError, match="there are no targets to compare with"):
        references_of(parts.dev)


def test_take_split_and_fingerprints():
    some = examples(["a", "b", "c"], ["x", "y", "z"], [["x"], ["y", "yy"], ["z"]])
    taken = some.take([2, 1])
    assert (taken.ids, taken["target"].to_pylist()) == (("e2", "e1"), ["z", "y"])
    assert references_of(taken) == [["z"], ["y", "yy"]] and len(taken) == 2
    again = examples(["c", "b"], ["z", "y"], [["z"], ["y", "yy"]])
    assert taken.text_fingerprint == again.text_fingerprint and taken.fingerprint != again.fingerprint
    prints = {
        some.fingerprint,
        examples(["a", "b", "c"], ["x", "y", "z"]).fingerprint,
        examples(["a", "b", "c"], ["x", "y", "z"], [["x", "y"], ["yy"], ["z"]]).fingerprint,
        examples(["a", "b", "c"], ["x", "yy", "z"], [["x"], ["y", "yy"], ["z"]]).fingerprint,
        examples(["a", "b", "c"]).fingerprint,
        examples(["ab", "", "c"]).fingerprint,
    }
    assert len(prints) == 6
    assert expanded(taken).ids == ("e2#1", "e1#1", "e1#2")
    first, second = split(examples(["p", "P ", "q", "r"]), (0.5, 0.5))
    assert len(first) + len(second) == 4
    assert ("e0" in first.ids) == ("e1" in first.ids)
