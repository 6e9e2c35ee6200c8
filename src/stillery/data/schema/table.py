"""The columns that matter of one file, checked row by row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stillery.data.readers.files import read_batches
from stillery.data.readers.row_numbers import INVISIBLE, NESTED, at, at_rows
from stillery.data.schema.columns import Columns, find
from stillery.data.schema.labels import SEPARATOR, label_name
from stillery.data.schema.multi_labels import has_lists, label_sets, refuse_lists, sets_of_columns
from stillery.errors import ErrorList, UserError

__all__ = [
    "Table",
    "Wanted",
    "empty_rows",
    "joined",
    "plain_column",
    "read_table",
    "scalar_column",
    "text_column",
    "unique_ids",
]

NOT_A_TEXT = ("", "nan", "NaN")
BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is asked for of a file: columns by name, and whether a text may have several labels, separated by what."""

    text: str | None = None
    text_pair: str | None = None
    label: str | None = None
    multi: bool | None = None
    separator: str | None = None

    def like(self, found: Columns) -> Wanted:
        """The same of another file, which must mean the same by its columns."""
        return replace(
            self, text=found.text, text_pair=found.text_pair, label=",".join(found.flags) or found.label or self.label
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """One file's texts, and its ids and label values as they were written."""

    where: str
    columns: Columns
    ids: tuple[str, ...]
    texts: pa.Array
    pairs: pa.Array | None
    values: list[Any] | None
    multi: bool
    separator: str | None

    def label_values(self, rows: Iterable[int] | None = None) -> list[Any]:
        """What each row says is its label, or the names of its labels where it may have several.

        With `rows`, positions from 0, only those are looked at.
        """
        if self.columns.flags:
            return sets_of_columns(self.values or [], self.columns.flags, self.where, rows)
        if self.multi:
            return label_sets(self.values or [], self.where, self.separator, rows)
        refuse_lists(self.values or [], self.where, rows)
        return self.values or []


def read_table(path: Path, wanted: Wanted, *, need_label: bool, labels: bool = True) -> Table:
    """Stream a file and keep its texts, ids and label values; texts that are missing or empty are errors.

    Without `labels` no label column is looked for.
    """
    where, columns, rows = path.name, None, 0
    kept: dict[str, list[pa.Array]] = {"text": [], "text_pair": []}
    ids: list[str | None] = []
    values: list[Any] = []
    for batch in read_batches(path):
        if columns is None:
            label = wanted.label if labels else None
            columns = find(batch.schema.names, where, wanted.text, wanted.text_pair, label, need_label and labels)
            columns = columns if labels else replace(columns, label=None)
        kept["text"].append(text_column(batch, columns.text, where, rows, "--text"))
        if columns.text_pair is not None:
            kept["text_pair"].append(text_column(batch, columns.text_pair, where, rows, "--text-pair"))
        if columns.id is not None:
            ids += [label_name(value) for value in scalar_column(batch, columns.id, where, rows, "id")]
        if columns.label is not None:
            values += _label_column(batch, columns.label, where, rows)
        elif columns.flags:
            values += zip(*(scalar_column(batch, name, where, rows, "label") for name in columns.flags), strict=True)
        rows += batch.num_rows
    if columns is None:
        raise UserError(f"{path}: the file has no rows")
    errors = ErrorList()
    for option, name in (("text", columns.text), ("text_pair", columns.text_pair)):
        empty = empty_rows(kept[option])
        if empty:
            errors.add(f"{at_rows(where, empty)}: the text in column {name!r} is empty; fill it in or remove the row")
    with errors.catch():
        unique = unique_ids(ids, where, columns.id) if columns.id is not None else tuple(map(str, range(1, rows + 1)))
    errors.raise_any()
    return Table(
        where=where,
        columns=columns,
        ids=unique,
        texts=joined(kept["text"]),
        pairs=joined(kept["text_pair"]) if columns.text_pair is not None else None,
        values=values if columns.label is not None or columns.flags else None,
        multi=_is_multi(values, columns, wanted, where),
        separator=(wanted.separator or SEPARATOR) if wanted.multi else None,
    )


def _is_multi(values: Sequence[Any], columns: Columns, wanted: Wanted, where: str) -> bool:
    if columns.flags:
        if wanted.multi is False:
            raise UserError(
                f"{where}: --label names {len(columns.flags)} columns, which is multi-label; name one column"
            )
        return True
    return has_lists(values) if wanted.multi is None else wanted.multi


def _label_column(batch: pa.RecordBatch, name: str, where: str, before: int) -> list[Any]:
    """The values of a label column: scalars, or lists of scalars."""
    column = plain_column(batch, name)
    listed = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if any(test(column.type) for test in listed) and not pa.types.is_nested(column.type.value_type):
        values: list[Any] = column.to_pylist()
        return values
    return scalar_column(batch, name, where, before, "label; choose another with --label")


def text_column(batch: pa.RecordBatch, name: str, where: str, before: int, option: str) -> pa.Array:
    """One column of a batch as large strings; `before` is the number of rows already read."""
    column = plain_column(batch, name)
    kind = column.type
    present = pc.invert(pc.is_null(column, nan_is_null=True))
    if not pc.any(present, min_count=0).as_py():
        return pa.nulls(len(column), pa.large_string())
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    if not any(test(kind) for test in (*texts, *BYTES)):
        row = before + 1 + pc.index(present, True).as_py()
        raise UserError(f"{at(where, row)}: column {name!r} holds {kind} values, not text; choose with {option}")
    _refuse_nested(batch, name, where)
    return _decoded(column, name, where, before)


def scalar_column(batch: pa.RecordBatch, name: str, where: str, before: int, use: str) -> list[Any]:
    """One column of a batch as plain values; `use` says what they are for."""
    column = plain_column(batch, name)
    if pa.types.is_nested(column.type) or pa.types.is_temporal(column.type):
        raise UserError(f"{where}: column {name!r} holds {column.type} values and cannot be the {use}")
    _refuse_nested(batch, name, where)
    if any(test(column.type) for test in BYTES):
        column = _decoded(column, name, where, before)
    values: list[Any] = column.to_pylist()
    return values


def _refuse_nested(batch: pa.RecordBatch, name: str, where: str) -> None:
    """Refuse lists and objects that were written out as text because other rows hold something else."""
    metadata = batch.schema.field(name).metadata if name in batch.schema.names else None
    row = int((metadata or {}).get(NESTED, 0))
    if row:
        raise UserError(f"{at(where, row)}: column {name!r} holds a list or an object, unlike other rows; correct it")


def _decoded(column: pa.Array, name: str, where: str, before: int) -> pa.Array:
    try:
        return column.cast(pa.large_string())
    except pa.ArrowInvalid:
        row = before + next(row for row, value in enumerate(column.to_pylist(), start=1) if not _is_utf8(value))
        raise UserError(f"{at(where, row)}: column {name!r} holds bytes that are not UTF-8 text") from None


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def plain_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """One column of a batch, not as a dictionary; nulls where the batch has none of that name."""
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows)
    column = batch.column(name)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def empty_rows(chunks: Sequence[pa.Array]) -> list[int]:
    """The rows, counted from 1, whose text is missing, blank or NaN."""
    rows: list[int] = []
    before = 1
    for chunk in chunks:
        bare = pc.fill_null(pc.utf8_trim(pc.utf8_trim_whitespace(chunk), INVISIBLE), "")
        wrong = pc.is_in(bare, value_set=pa.array(NOT_A_TEXT, type=pa.large_string()))
        rows += (np.flatnonzero(wrong.to_numpy(zero_copy_only=False)) + before).tolist()
        before += len(chunk)
    return rows


def unique_ids(ids: Sequence[str | None], where: str, name: str) -> tuple[str, ...]:
    """The ids of a file's rows; one that is missing or there twice is an error."""
    missing = [row for row, value in enumerate(ids, start=1) if value is None]
    if missing:
        raise UserError(
            f"{at_rows(where, missing)}: no value in the id column {name!r}; fill it in or rename the column"
        )
    if len(set(ids)) < len(ids):
        first: dict[str | None, int] = {}
        again = [row for row, value in enumerate(ids, start=1) if first.setdefault(value, row) != row]
        value = ids[again[0] - 1]
        raise UserError(
            f"{at_rows(where, again)}: the id {value!r} in column {name!r} is already that of row {first[value]}; "
            "make the ids unique or rename the column"
        )
    return tuple(value for value in ids if value is not None)


def joined(chunks: Sequence[pa.Array]) -> pa.Array:
    """Pieces of one column as one array."""
    whole = pa.chunked_array(chunks, type=pa.large_string()).combine_chunks()
    # Older Arrow gives a chunked array back when there is one chunk or none.
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
