"""Files as people have them: other encodings, JSON in one piece, workbooks, conversations, empty rows."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pytest
from reading import load, load_file, load_generation, load_generation_to_score, load_inputs, load_to_score

from stillery.data.readers.files import read_batches
from stillery.data.schema.answer_labels import classification
from stillery.data.schema.answer_texts import generation
from stillery.data.schema.labels import Labels
from stillery.data.schema.new_texts import open_texts
from stillery.errors import UserError

ROWS = [("un café, chaud", "bon"), ("pas drôle", "nul"), ("déjà vu", "nul"), ("très bien", "bon")]
PLAIN = "text,label\n" + "".join(f'"{text}",{label}\n' for text, label in ROWS)
TEXTS = [text for text, _ in ROWS]


def read(path: Path, **options: Any) -> dict[str, list[Any]]:
    return pa.Table.from_batches(list(read_batches(path, **options))).to_pydict()


def lines_of(call: Any) -> tuple[str, ...]:
    with pytest.raises(UserError) as error:
        call()
    return error.value.lines


# Encodings.


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".jsonl", ".json", ".txt"])
def test_a_text_file_in_another_encoding(tmp_path: Path, encoding: str, suffix: str) -> None:
    written = {
        ".csv": PLAIN,
        ".tsv.gz": PLAIN.replace('",', '"\t').replace("text,", "text\t"),
        ".jsonl": "".join(
            json.dumps({"text": text, "label": label}, ensure_ascii=False) + "\n" for text, label in ROWS
        ),
        ".json": json.dumps([{"text": text, "label": label} for text, label in ROWS], ensure_ascii=False, indent=1),
        ".txt": "\n".join(TEXTS),
    }[suffix].encode(encoding)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(gzip.compress(written) if suffix.endswith(".gz") else written)
    assert read(path, encoding=encoding)["text"] == TEXTS
    if suffix != ".txt":
        examples, labels = load_file(path, encoding=encoding)
        plain = tmp_path / "plain.csv"
        plain.write_text(PLAIN, encoding="utf-8")
        assert labels.names == ("bon", "nul") and examples.fingerprint == load_file(plain)[0].fingerprint


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            PLAIN.encode("latin-1"),
            "row 1 (also 2, 3, 4): not UTF-8 text; save the file as UTF-8, or use --encoding lat",
        ),
        ("text,label\n“a”,x\nb,y\n".encode("cp1252"), "save the file as UTF-8, or use --encoding cp1252, which fits"),
        (b"text,label\ncaf\xe9,x\nb,y\n" + "é,x\n".encode(), "not UTF-8 text; save the file as UTF-8"),
        (b"text,label\n\x81\xe9,x\nb,y\n", "not UTF-8 text; save the file as UTF-8"),
        (PLAIN.encode("utf-16-le"), "--encoding utf-16-le"),
        (PLAIN.encode("utf-16-be"), "--encoding utf-16-be"),
        (PLAIN.encode("utf-16"), "--encoding utf-16"),
        (PLAIN.encode("utf-32"), "--encoding utf-32"),
    ],
)
def test_an_encoding_is_suggested_where_one_fits(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    line = lines_of(lambda: load_file(path))[0]
    assert said in line
    suggested = line.partition("--encoding ")[2].removesuffix(", which fits")
    assert bool(suggested) == ("--encoding" in said)
    if suggested:
        load_file(path, encoding=suggested)


def test_an_encoding_that_does_not_fit_or_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\na,x\ncaf\xe9,y\n")
    assert lines_of(lambda: load_file(path, encoding="utf-8")) == (
        "a.csv, row 2: not utf-8 text; use another --encoding, or save the file as UTF-8",
    )
    assert "not utf-16 text" in lines_of(lambda: load_file(path, encoding="utf-16"))[0]
    for name in ("latn", "base64", "punycode"):
        assert f"--encoding {name}: no" in lines_of(lambda name=name: load_file(path, encoding=name))[0]
    path.write_text(PLAIN, encoding="utf-8")
    for name in ("latin-1", "cp1252", "iso-8859-15"):
        assert lines_of(lambda name=name: load_file(path, encoding=name)) == (
            f"a.csv: UTF-8 text, not {name}; leave --encoding out, or save all files alike",
        )
    path.write_text("text,label\na,x\nb,y\n")
    assert load_file(path, encoding="latin-1")[0]["text"].to_pylist() == ["a", "b"]
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["a", "b"], "label": ["x", "y"]}), tmp_path / "a.parquet")
    assert (
        "a.parquet: --encoding is for text files"
        in lines_of(lambda: load_file(tmp_path / "a.parquet", encoding="utf-8"))[0]
    )


# JSON in one piece.

RECORDS = [{"text": "a", "label": 1}, {"text": "b", "label": 0}, {"text": "c", "label": 1}]
SHAPES = {
    "records": RECORDS,
    "columns": {name: {str(row): record[name] for row, record in enumerate(RECORDS)} for name in ("text", "label")},
    "lists": {name: [record[name] for record in RECORDS] for name in ("text", "label")},
    "split": {"columns": ["text", "label"], "index": [0, 1, 2], "data": [["a", 1], ["b", 0], ["c", 1]]},
}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_json_in_one_piece_is_read_as_its_rows(tmp_path: Path, shape: str, indent: int | None) -> None:
    path = tmp_path / "a.json"
    path.write_text("\ufeff\n" * (indent is None) + json.dumps(SHAPES[shape], indent=indent), encoding="utf-8")
    assert read(path) == {"text": ["a", "b", "c"], "label": [1, 0, 1]}
    assert [batch.num_rows for batch in read_batches(path, batch_rows=2)] == [2, 1]


def test_a_row_with_lists_or_objects_stays_a_row(tmp_path: Path) -> None:
    row = {"tokens": ["a", "b"], "tags": ["X", "Y"]}
    for name in ("a.json", "a.jsonl"):
        (tmp_path / name).write_text(json.dumps(row) + "\n")
        assert read(tmp_path / name) == {"tokens": [["a", "b"]], "tags": [["X", "Y"]]}
    lists = json.dumps({"text": ["a"], "label": ["x"]})
    (tmp_path / "a.jsonl").write_text(lists)
    assert read(tmp_path / "a.jsonl") == {"text": [["a"]], "label": [["x"]]}
    nested = json.dumps({"a": {"k": 1}, "b": {"k": 2}})
    (tmp_path / "b.jsonl").write_text(f"{nested}\n{nested}\n")
    assert read(tmp_path / "b.jsonl") == {"a": [{"k": 1}] * 2, "b": [{"k": 2}] * 2}


# Workbooks.


def test_a_workbook(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    for cells in [("text", "label", None), ("a, b", 1, None), (None, None), (" ", None), (7, 0), ("c\nd", 1)]:
        sheet.append(cells)
    book.create_sheet("notes")
    path = tmp_path / "a.xlsx"
    book.save(path)
    assert read(path) == {"text": ["a, b", "7", "c\nd"], "label": [1, 0, 1]}
    examples, labels = load_file(path)
    assert labels.names == ("0", "1") and examples.labels.tolist() == [1, 0, 1] and examples.ids == ("1", "2", "3")
    # Beside other data a workbook is where that was made.
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"t{row},{'xy'[row % 2]}\n" for row in range(20)))
    (tmp_path / "train.xlsx").write_bytes(path.read_bytes())
    assert load(tmp_path).labels.names == ("x", "y")
    book["notes"].append(["here"])
    book.save(path)
    assert "a.xlsx: 2 sheets have something in them (Sheet, notes)" in lines_of(lambda: load_file(path))[0]


def test_a_workbook_without_the_package_and_one_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04")
    said = lines_of(lambda: load_file(tmp_path / "a.xlsx"))
    assert said == ('a.xlsx: reading a workbook needs openpyxl: pip install "stillery[excel]", or export it as CSV',)
    from stillery.data.readers.writer import written_format

    assert "workbooks are read, not written" in lines_of(lambda: written_format(tmp_path / "b.xlsx"))[0]


# Conversations.


def chat(*said: str, system: str = "") -> list[dict[str, str]]:
    turns = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(said)]
    return [*([{"role": "system", "content": system}] if system else []), *turns]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_conversations_are_sources_and_targets(tmp_path: Path) -> None:
    path = write(
        tmp_path / "chat.jsonl",
        [
            {"messages": chat("hi", "hello"), "source": "a web page"},
            {"messages": chat("2+2?", "4", "sure?", "yes"), "source": "a book"},
            {"messages": chat("hi", "ahoy", system="Be a pirate.")},
            {"messages": [{"from": "human", "value": "why"}, {"from": "gpt", "value": "because"}]},
        ],
    )
    found = load_generation_to_score(path)
    assert found["source"].to_pylist() == [
        "hi", "user: 2+2?\nassistant: 4\nuser: sure?", "system: Be a pirate.\nuser: hi", "why",
    ]  # fmt: skip
    assert found["target"].to_pylist() == ["hello", "yes", "ahoy", "because"]
    file = open_texts(path, generation())
    assert [text for batch in file.batches() for text in batch.examples["source"].to_pylist()] == found[
        "source"
    ].to_pylist()
    assert file.names == ("messages", "source") and file.rows == 4


def test_conversations_split_and_folders(tmp_path: Path) -> None:
    rows = [{"messages": chat(f"question {row}", f"answer {row}")} for row in range(30)]
    whole = load_generation(write(tmp_path / "chat.jsonl", rows))
    plain = [{"source": f"question {row}", "target": f"answer {row}"} for row in range(30)]
    same = load_generation(write(tmp_path / "plain.jsonl", plain))
    assert whole.train["target"].to_pylist() == same.train["target"].to_pylist()
    assert whole.train.text_fingerprint == same.train.text_fingerprint
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "train.jsonl", rows)
    write(folder / "dev.jsonl", rows[:3])
    write(folder / "test.jsonl", [{"messages": chat("unanswered")}])
    parts = load_generation(folder)
    assert parts.dev["target"].to_pylist() == ["answer 0", "answer 1", "answer 2"] and parts.test is None


def test_conversations_that_cannot_be_learnt_from(tmp_path: Path) -> None:
    path = write(
        tmp_path / "chat.jsonl",
        [
            {"messages": chat("hi", "hello")},
            {"messages": chat("nobody answers")},
            {"messages": chat("a", "b")},
            {"messages": [{"role": "user"}, {"role": "assistant", "content": "b"}]},
        ],
    )
    said = lines_of(lambda: load_generation(path))
    assert said[0].startswith("chat.jsonl, row 2: the last message in column 'messages' is not the assistant's")
    assert said[1].startswith("chat.jsonl, row 4: a message in column 'messages' is not {\"role\": a text")
    # Where the file has sources and targets, those are meant; and so they are where they are asked for.
    both = write(tmp_path / "both.jsonl", [{"prompt": "p", "completion": "c", "messages": chat("hi", "hello")}])
    assert load_generation_to_score(both)["source"].to_pylist() == ["p"]
    other = write(tmp_path / "other.jsonl", [{"prompt": "p", "said": "c", "messages": chat("hi", "hello")}])
    assert load_generation_to_score(other)["source"].to_pylist() == ["hi"]
    assert load_generation_to_score(other, source="prompt", target="said")["target"].to_pylist() == ["c"]


# Empty rows.

GAPS = "id,text,label\n1,a,x\n2,,x\n,,\n4,b,\n5,c,y\n6,nan,y\n7,d,x\n8,e,y\n"


def test_empty_rows_are_left_out_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(GAPS)
    examples, labels = load_file(path, skip_empty=True)
    assert examples.ids == ("1", "5", "7", "8") and examples["text"].to_pylist() == ["a", "c", "d", "e"]
    assert labels.names == ("x", "y") and examples.labels.tolist() == [0, 1, 0, 1]
    parts = load(path, skip_empty=True)
    assert sorted((*parts.train.ids, *parts.dev.ids, *parts.test.ids)) == ["1", "5", "7", "8"]
    assert "4 of 8 rows of a.csv are empty and left out" in parts.note
    for some in (parts.train, parts.dev, parts.test):
        assert all(labels.names[label] == {"1": "x", "5": "y", "7": "x", "8": "y"}[one]
                   for one, label in zip(some.ids, some.labels, strict=True))  # fmt: skip
    # Without ids of their own, rows keep the numbers they have in the file; without labels, those do not matter.
    path.write_text(GAPS.replace("id,", "other,"))
    assert load_to_score(path, skip_empty=True).ids == ("1", "5", "7", "8")
    assert load_inputs(path, skip_empty=True).ids == ("1", "4", "5", "7", "8")
    assert load_file(path, skip_empty=True, label="label", text="text")[0].ids == ("1", "5", "7", "8")


def test_an_error_in_a_row_behind_empty_ones_names_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(GAPS + "9,f,z\n")
    said = lines_of(lambda: load_file(path, skip_empty=True, labels=Labels(names=("x", "y"))))
    assert said == ("a.csv, row 9: the label 'z' is not known; known labels: x, y",)
    path.write_text("text,label\n,x\n ,y\n")
    assert "every row is empty" in lines_of(lambda: load_file(path, skip_empty=True))[0]


def test_empty_rows_of_several_files_and_labels(tmp_path: Path) -> None:
    for name, start in (("train-1", 0), ("train-2", 10)):
        rows = "".join(f"t{start + row},{'xy'[row % 2]}\n" for row in range(10))
        (tmp_path / f"{name}.csv").write_text("text,label\n,x\n" + rows + "left,\n")
    (tmp_path / "test.csv").write_text("text,label\nonly,\n,\n")
    parts = load(tmp_path, skip_empty=True)
    both = {*parts.train.ids, *parts.dev.ids}
    assert len(both) == 20 and {"train-1-2", "train-2-11"} <= both and "train-2-12" not in both
    assert np.bincount(np.concatenate([parts.train.labels, parts.dev.labels])).tolist() == [10, 10]
    with pytest.raises(UserError, match=r"test\.csv: no row has a label"):
        load_to_score(tmp_path, split="test", skip_empty=True)
    several = tmp_path / "several.csv"
    several.write_text("text,label\na,x|y\nb,\n,x\nc,y\n")
    examples, _ = load_file(several, skip_empty=True, multi_label=True)
    assert examples.ids == ("1", "2", "4") and examples.labels.tolist() == [[1, 1], [0, 0], [0, 1]]


def test_empty_sources_and_targets_are_left_out_when_asked(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        [{"source": "a", "target": "A"}, {"source": "", "target": "B"}, {"source": "c", "target": None},
         {"source": "d", "target": ["D", "E"]}][:3],
    )  # fmt: skip
    found = load_generation_to_score(path, skip_empty=True)
    assert (found.ids, found["target"].to_pylist()) == (("1",), ["A"])


def test_predict_leaves_empty_rows_out_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(GAPS)
    file = open_texts(path, classification(skip_empty=True))
    kept = [(rows.batch["id"].to_pylist(), rows.examples["text"].to_pylist()) for rows in file.batches(3)]
    assert kept == [(["1"], ["a"]), (["4", "5"], ["b", "c"]), (["7", "8"], ["d", "e"])] and file.rows == 5
    said = lines_of(lambda: open_texts(path, classification()))
    assert said == (
        "a.csv, row 2 (also 3, 6): the text in column 'text' is empty; fill it in or remove the row, or leave such "
        "rows out with --skip-empty",
    )


# All at once.


def test_all_bad_rows_of_all_kinds_are_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,text,label\n1,a,x\n2,b\n3,,x\n4,c,\n5,caf\xe9,y\n6,d,x,y\n7,e,z\n7,f,y\n9,g,h,i\n")
    said = lines_of(lambda: load_file(path, labels=Labels(names=("x", "y"))))
    assert [line.partition(";")[0] for line in said] == [
        "a.csv, row 2: 2 fields where the header has 3",
        "a.csv, row 6 (also 9): 4 fields where the header has 3",
        "a.csv, row 5: not UTF-8 text",
        "a.csv, row 3: the text in column 'text' is empty",
        "a.csv, row 8: the id '7' in column 'id' is already that of row 7",
        "a.csv, row 4: the label is missing",
        "a.csv, row 7: the label 'z' is not known",
    ]
    assert [line.partition(";")[0] for line in lines_of(lambda: open_texts(path, classification()))] == [
        *(line.partition(";")[0] for line in said[:4]),
    ]


def test_all_bad_lines_of_json_and_of_a_folder(tmp_path: Path) -> None:
    good = "".join(json.dumps({"text": f"t{row}", "label": "xy"[row % 2]}) + "\n" for row in range(6))
    (tmp_path / "train.jsonl").write_text(good + '{"text": \n[1]\n{"text": "", "label": "x"}\n{"text": "u"}\n')
    (tmp_path / "dev.jsonl").write_text('{"text": "v", "label": null}\n{"text": "w", "label": "x"}\n')
    said = lines_of(lambda: load(tmp_path))
    assert [line.partition(" (Exp")[0].partition(";")[0] for line in said] == [
        "train.jsonl, row 7: not valid JSON",
        'train.jsonl, row 8: a JSON list, not an object such as {"text": ..., "label": ...}',
        "train.jsonl, row 9: the text in column 'text' is empty",
        "train.jsonl, row 10: the label is missing",
        "dev.jsonl, row 1: the label is missing",
    ]
