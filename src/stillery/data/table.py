"""The columns that matter of one file, checked row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stillery.data.columns import Columns, find
from stillery.data.files import read_batches
from stillery.data.labels import label_name
from stillery.data.rows import at, at_rows
from stillery.faults import Fault, Gathered

__all__ = ["Table", "empty_rows", "read_table", "text_column"]

NOT_A_TEXT = ("", "nan", "NaN")


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """One file's texts, and its ids and label values as they were written."""

    where: str
    columns: Columns
    ids: tuple[str, ...]
    texts: pa.Array
    pairs: pa.Array | None
    values: list[Any] | None


def read_table(path: Path, *, text: str | None, text_pair: str | None, label: str | None, need_label: bool) -> Table:
    """Stream a file and keep its texts, ids and label values; texts that are missing or empty are faults."""
    where, columns, rows = path.name, None, 0
    kept: dict[str, list[pa.Array]] = {"text": [], "text_pair": []}
    ids: list[str | None] = []
    values: list[Any] = []
    for batch in read_batches(path):
        if columns is None:
            columns = find(batch.schema.names, where, text, text_pair, label, need_label)
        kept["text"].append(text_column(batch, columns.text, where, rows, "--text"))
        if columns.text_pair is not None:
            kept["text_pair"].append(text_column(batch, columns.text_pair, where, rows, "--text-pair"))
        if columns.id is not None:
            ids += [label_name(value) for value in _scalars(batch, columns.id, where, "id")]
        if columns.label is not None:
            values += _scalars(batch, columns.label, where, "label; choose another with --label")
        rows += batch.num_rows
    if columns is None:
        raise Fault(f"{path}: the file has no rows")
    faults = Gathered()
    for option, name in (("text", columns.text), ("text_pair", columns.text_pair)):
        empty = empty_rows(kept[option])
        if empty:
            faults.add(f"{at_rows(where, empty)}: the text in column {name!r} is empty; fill it in or remove the row")
    with faults.catch():
        unique = _unique(ids, where, columns.id) if columns.id is not None else tuple(map(str, range(1, rows + 1)))
    faults.raise_any()
    return Table(
        where=where,
        columns=columns,
        ids=unique,
        texts=_joined(kept["text"]),
        pairs=_joined(kept["text_pair"]) if columns.text_pair is not None else None,
        values=values if columns.label is not None else None,
    )


def text_column(batch: pa.RecordBatch, name: str, where: str, before: int, option: str) -> pa.Array:
    """One column of a batch as large strings; `before` is the number of rows already read."""
    column = _plain_column(batch, name)
    kind = column.type
    if pa.types.is_floating(kind) and pc.all(pc.is_nan(column), min_count=0).as_py():
        return pa.nulls(len(column), pa.large_string())
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    if not any(test(kind) for test in (*texts, pa.types.is_binary, pa.types.is_large_binary)):
        raise Fault(f"{at(where, before + 1)}: column {name!r} holds {kind} values, not text; choose with {option}")
    try:
        return column.cast(pa.large_string())
    except pa.ArrowInvalid:
        raise Fault(f"{at(where, before + 1)} or after: column {name!r} holds bytes that are not UTF-8 text") from None


def _scalars(batch: pa.RecordBatch, name: str, where: str, use: str) -> list[Any]:
    column = _plain_column(batch, name)
    if pa.types.is_nested(column.type):
        raise Fault(f"{where}: column {name!r} holds {column.type} values and cannot be the {use}")
    values: list[Any] = column.to_pylist()
    return values


def _plain_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows)
    column = batch.column(name)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def empty_rows(chunks: Sequence[pa.Array]) -> list[int]:
    """The rows, counted from 1, whose text is missing, blank or NaN."""
    rows: list[int] = []
    before = 1
    for chunk in chunks:
        bare = pc.fill_null(pc.utf8_trim_whitespace(chunk), "")
        wrong = pc.is_in(bare, value_set=pa.array(NOT_A_TEXT, type=pa.large_string()))
        rows += (np.flatnonzero(wrong.to_numpy(zero_copy_only=False)) + before).tolist()
        before += len(chunk)
    return rows


def _unique(ids: Sequence[str | None], where: str, name: str) -> tuple[str, ...]:
    missing = [row for row, value in enumerate(ids, start=1) if value is None]
    if missing:
        raise Fault(f"{at_rows(where, missing)}: no value in the id column {name!r}; fill it in or rename the column")
    if len(set(ids)) < len(ids):
        first: dict[str | None, int] = {}
        again = [row for row, value in enumerate(ids, start=1) if first.setdefault(value, row) != row]
        value = ids[again[0] - 1]
        raise Fault(
            f"{at_rows(where, again)}: the id {value!r} in column {name!r} is already that of row {first[value]}; "
            "make the ids unique or rename the column"
        )
    return tuple(value for value in ids if value is not None)


def _joined(chunks: Sequence[pa.Array]) -> pa.Array:
    joined = pa.chunked_array(chunks, type=pa.large_string()).combine_chunks()
    # Older Arrow gives a chunked array back when there is one chunk or none.
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined
