"""A file's texts a batch at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stillery.data.schema.answer_labels import classification
from stillery.data.schema.new_texts import open_texts
from stillery.errors import UserError


def write_lines(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_rows_come_in_order_with_their_numbers(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [{"text": f"t{row}"} for row in range(7)])
    file = open_texts(path, classification())
    assert (file.rows, file.names) == (7, ("text",))
    batches = list(file.batches(batch_rows=3))
    assert [len(batch.examples) for batch in batches] == [3, 3, 1]
    assert [name for batch in batches for name in batch.examples.ids] == list("1234567")
    assert [text for batch in batches for text in batch.examples["text"].to_pylist()] == [f"t{row}" for row in range(7)]


def test_every_batch_has_every_column(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [{"text": "a", "x": 1}, {"text": "b", "y": "z"}])
    file = open_texts(path, classification())
    assert file.names == ("text", "x", "y")
    first, second = file.batches(batch_rows=1)
    assert first.batch.to_pylist() == [{"text": "a", "x": 1, "y": None}]
    assert second.batch.to_pylist() == [{"text": "b", "x": None, "y": "z"}]


def test_empty_texts_are_found_before_any_batch_is_given(tmp_path):
    rows = [{"text": "a", "text2": "b"} for _ in range(2500)]
    rows[5]["text"] = " "
    rows[2100]["text"] = None
    rows[2400]["text2"] = "nan"
    with pytest.raises(UserError) as raised:
        open_texts(write_lines(tmp_path / "a.jsonl", rows), classification())
    assert raised.value.lines == (
        "a.jsonl, row 6 (also 2101): the text in column 'text' is empty; fill it in or remove the row, or leave such "
        "rows out with --skip-empty",
        "a.jsonl, row 2401: the text in column 'text2' is empty; fill it in or remove the row, or leave such rows out "
        "with --skip-empty",
    )


def test_a_column_may_be_asked_for(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [{"one": "a", "two": "b"}])
    (batch,) = open_texts(path, classification(text="two", text_pair="one")).batches()
    assert batch.examples["text"].to_pylist() == ["b"]
    assert batch.examples["text_pair"].to_pylist() == ["a"]
    with pytest.raises(UserError, match="no column 'three'"):
        open_texts(path, classification(text="three"))


def test_parquet_takes_columns_whose_values_come_late(tmp_path: Path) -> None:
    from stillery.data.readers.writer import write_rows

    source = tmp_path / "late.jsonl"
    lines = ['{"text": "fine", "stars": null}'] * 1500 + [
        '{"text": "fine", "stars": 4}',
        '{"text": "fine", "stars": 4.5}',
    ]
    source.write_text("\n".join(lines))
    file = open_texts(source, classification())
    target = tmp_path / "out.parquet"
    with write_rows(target, file.names, file.types) as writer:
        for rows in file.batches():
            writer.write({name: rows.batch.column(name).to_pylist() for name in file.names})
    stars = pq.read_table(target).column("stars").to_pylist()
    assert stars == [None] * 1500 + [4.0, 4.5]
