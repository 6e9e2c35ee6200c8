"""Reading of one column with validation: texts, lists of texts, and scalar values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stillery.data.readers.row_numbers import INVISIBLE, NESTED, at
from stillery.data.schema.labels import label_name
from stillery.errors import UserError

__all__ = [
    "TEXTS",
    "empty_lists",
    "empty_rows",
    "holds_lists",
    "list_column",
    "name_column",
    "plain_column",
    "refuse_nested",
    "scalar_column",
    "text_column",
]

TEXTS = pa.list_(pa.large_string())
"""The Arrow type of a column with several texts per example."""

NOT_A_TEXT = ("", "nan", "NaN")
BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
STRINGS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)


def text_column(batch: pa.RecordBatch, name: str, where: str, before: int, option: str) -> pa.Array:
    """Read one column of a batch as large strings; `before` is the number of rows already read."""
    column = plain_column(batch, name)
    kind = column.type
    present = pc.invert(pc.is_null(column, nan_is_null=True))
    if not pc.any(present, min_count=0).as_py():
        return pa.nulls(len(column), pa.large_string())
    if not any(test(kind) for test in (*STRINGS, *BYTES)):
        row = before + 1 + pc.index(present, True).as_py()
        raise UserError(f"{at(where, row)}: column {name!r} holds {kind} values, not text; choose with {option}")
    refuse_nested(batch, name, where)
    return _decoded(column, name, where, before)


def list_column(batch: pa.RecordBatch, name: str, where: str, before: int, option: str) -> pa.Array:
    """Read one column of a batch as lists of large strings."""
    column = plain_column(batch, name)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), TEXTS)
    if not holds_lists(column.type) or not any(test(column.type.value_type) for test in STRINGS):
        row = before + 1 + int(pc.index(pc.is_valid(column), True).as_py())
        raise UserError(f"{at(where, row)}: column {name!r} holds {column.type}, not lists of texts; choose {option}")
    return column.cast(TEXTS)


def scalar_column(batch: pa.RecordBatch, name: str, where: str, before: int, use: str) -> list[Any]:
    """Read one column of a batch as Python scalars; `use` is their purpose in errors."""
    column = plain_column(batch, name)
    if pa.types.is_nested(column.type) or pa.types.is_temporal(column.type):
        raise UserError(f"{where}: column {name!r} holds {column.type} values and cannot be the {use}")
    refuse_nested(batch, name, where)
    if any(test(column.type) for test in BYTES):
        column = _decoded(column, name, where, before)
    values: list[Any] = column.to_pylist()
    return values


def name_column(batch: pa.RecordBatch, name: str, where: str, before: int, option: str) -> pa.Array:
    """Read one column of a batch as large strings; whole numbers are names too."""
    names = [label_name(value) for value in scalar_column(batch, name, where, before, f"query; choose with {option}")]
    return pa.array(names, type=pa.large_string())


def plain_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """One column of a batch, decoded if it is dictionary-encoded; nulls if the column is missing."""
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows)
    column = batch.column(name)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def holds_lists(kind: pa.DataType) -> bool:
    """Return whether values of this type are lists."""
    return any(test(kind) for test in LISTS)


def empty_rows(texts: pa.Array) -> NDArray[np.int64]:
    """The rows, counted from 0, whose text is missing, blank or NaN."""
    bare = pc.fill_null(pc.utf8_trim(pc.utf8_trim_whitespace(texts), INVISIBLE), "")
    wrong = pc.is_in(bare, value_set=pa.array(NOT_A_TEXT, type=pa.large_string()))
    return np.flatnonzero(wrong.to_numpy(zero_copy_only=False)).astype(np.int64)


def empty_lists(lists: pa.Array) -> NDArray[np.int64]:
    """The rows, counted from 0, that have no list, an empty one, or an empty text in it."""
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    owners = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    return np.union1d(np.flatnonzero(sizes == 0), owners[empty_rows(lists.flatten())]).astype(np.int64)


def refuse_nested(batch: pa.RecordBatch, name: str, where: str) -> None:
    """Raise UserError for lists and objects that were converted to text because other rows hold other types."""
    metadata = batch.schema.field(name).metadata if name in batch.schema.names else None
    row = int((metadata or {}).get(NESTED, 0))
    if row:
        raise UserError(f"{at(where, row)}: column {name!r} holds a list or an object, unlike other rows; correct it")


def _decoded(column: pa.Array, name: str, where: str, before: int) -> pa.Array:
    try:
        return column.cast(pa.large_string())
    except pa.ArrowInvalid:
        values: Sequence[Any] = column.to_pylist()
        row = before + next(row for row, value in enumerate(values, start=1) if not _is_utf8(value))
        raise UserError(f"{at(where, row)}: column {name!r} holds bytes that are not UTF-8 text") from None


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True
