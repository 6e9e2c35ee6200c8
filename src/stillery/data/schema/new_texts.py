"""Batchwise reading of a file's inputs, for predictions on files of any size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.readers.files import read_batches
from stillery.data.readers.row_errors import RowErrors
from stillery.data.schema.columns import Columns, find
from stillery.data.schema.examples import Examples
from stillery.data.schema.roles import Schema
from stillery.data.schema.table import refuse_empty
from stillery.errors import ErrorList, UserError
from stillery.progress import say

__all__ = ["TextBatch", "TextFile", "open_texts"]

BATCH_ROWS = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class TextBatch:
    """A batch of unchanged rows of a file, and their inputs."""

    batch: pa.RecordBatch
    examples: Examples


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A scanned file: its columns and their types, the input columns, and its number of rows.

    `rows` counts rows that are not empty; `empty` has the indices from 0 of those that are, and are skipped.
    """

    path: Path
    schema: Schema
    names: tuple[str, ...]
    types: dict[str, pa.DataType]
    columns: Columns
    rows: int
    empty: NDArray[np.int64]

    def batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[TextBatch]:
        """Iterate over the rows, each batch with every column; values missing in JSON rows are null."""
        before = 0
        for batch in read_batches(self.path, batch_rows, self.schema.encoding):
            inputs = _inputs(batch, self.schema, self.columns, self.path.name, before)
            ids = tuple(str(before + row) for row in range(1, batch.num_rows + 1))
            examples = Examples(ids=ids, columns=inputs, source=self.path.name)
            found = TextBatch(batch=_with_columns(batch, self.names), examples=examples)
            left = np.setdiff1d(np.arange(batch.num_rows), self.empty - before)
            before += batch.num_rows
            if len(left) == batch.num_rows:
                yield found
            elif len(left):
                yield TextBatch(batch=found.batch.take(pa.array(left)), examples=examples.take(left))

    def column(self, rows: TextBatch, name: str) -> list[Any] | pa.Array:
        """A column's values unchanged, or as text if the file mixes incompatible types."""
        column, kind = rows.batch.column(name), self.types[name]
        if column.type == kind:
            return column
        values: list[Any] = column.to_pylist()
        as_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return [_text(value) for value in values] if as_text else values


def open_texts(path: Path, schema: Schema) -> TextFile:
    """Scan a whole file before processing it; rows that cannot be read, or are empty, are errors.

    With `skip_empty` in the schema, empty ones are skipped instead.
    """
    where, columns, rows = path.name, None, 0
    types: dict[str, pa.DataType] = {}
    empty: dict[str, list[int]] = {role.name: [] for role in schema.inputs}
    bad, errors = RowErrors(where, gather=True), ErrorList()
    try:
        for batch in read_batches(path, BATCH_ROWS, schema.encoding, bad):
            if columns is None:
                names = schema.prepared(batch, where, rows, False).schema.names
                columns = find(names, where, schema, look=False)
            inputs = _inputs(batch, schema, columns, where, rows)
            for role in schema.inputs:
                if role.name in inputs:
                    empty[role.name] += (role.empty(inputs[role.name]) + rows).tolist()
            for field in batch.schema:
                empty_here = batch.column(field.name).null_count == batch.num_rows
                types[field.name] = _common(types.get(field.name, pa.null()), pa.null() if empty_here else field.type)
            rows += batch.num_rows
        if columns is None:
            raise UserError(f"{path}: the file has no rows")
    except UserError as error:
        for line in (*bad.lines(), *error.lines):
            errors.add(line)
        errors.raise_any()
        raise
    for line in bad.lines():
        errors.add(line)
    all_empty = np.array(sorted(set().union(*empty.values())), dtype=np.int64)
    if not schema.skip_empty:
        for role in schema.inputs:
            with errors.catch():
                unread = {position - 1 for position in bad.positions}
                refuse_empty(role, [row for row in empty[role.name] if row not in unread], columns, where)
    elif len(all_empty) == rows and not errors.lines:
        errors.add(f"{path}: every row is empty; is it the right column? ({schema.inputs[0].option})")
    errors.raise_any()
    if len(all_empty):
        say(f"{len(all_empty)} of {rows} rows of {where} are empty and left out")
    return TextFile(
        path=path, schema=schema, names=tuple(types), types=types, columns=columns, rows=rows - len(all_empty),
        empty=all_empty,
    )  # fmt: skip


def _inputs(batch: pa.RecordBatch, schema: Schema, columns: Columns, where: str, before: int) -> dict[str, pa.Array]:
    batch = schema.prepared(batch, where, before, False)
    return {
        role.name: role.read(batch, columns[role.name], where, before, role.option)
        for role in schema.inputs
        if columns.get(role.name) is not None
    }


def _text(value: Any) -> str | None:
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value if value is None else str(value)


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A common type for two batches: JSON may have integers in one batch and other numbers in the next."""
    schemas = [pa.schema([("column", kind)]) for kind in (one, other)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field("column").type
    except pa.ArrowException:
        return pa.string()


def _with_columns(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
    present = set(batch.schema.names)
    arrays = [batch.column(name) if name in present else pa.nulls(batch.num_rows) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))
