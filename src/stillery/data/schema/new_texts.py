"""A file's inputs a batch at a time, for answering files of any size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from stillery.data.readers.files import read_batches
from stillery.data.schema.columns import Columns, find
from stillery.data.schema.examples import Examples
from stillery.data.schema.roles import Schema
from stillery.data.schema.table import refuse_empty
from stillery.errors import ErrorList, UserError

__all__ = ["TextBatch", "TextFile", "open_texts"]

BATCH_ROWS = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class TextBatch:
    """Some rows of a file as they are, and their inputs."""

    batch: pa.RecordBatch
    examples: Examples


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A file that was looked through: its columns and their types, which of them hold the inputs, and its rows."""

    path: Path
    schema: Schema
    names: tuple[str, ...]
    types: dict[str, pa.DataType]
    columns: Columns
    rows: int

    def batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[TextBatch]:
        """The rows, each batch with every column; what a row of JSON lacks is null."""
        before = 0
        for batch in read_batches(self.path, batch_rows):
            inputs = _inputs(batch, self.schema, self.columns, self.path.name, before)
            ids = tuple(str(before + row) for row in range(1, batch.num_rows + 1))
            before += batch.num_rows
            examples = Examples(ids=ids, columns=inputs, source=self.path.name)
            yield TextBatch(batch=_with_columns(batch, self.names), examples=examples)

    def column(self, rows: TextBatch, name: str) -> list[Any] | pa.Array:
        """A column's values as they are; as text where the file mixes kinds that have nothing in common."""
        column, kind = rows.batch.column(name), self.types[name]
        if column.type == kind:
            return column
        values: list[Any] = column.to_pylist()
        as_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return [_text(value) for value in values] if as_text else values


def open_texts(path: Path, schema: Schema) -> TextFile:
    """Look through a whole file before any work is done on it; every input that is missing or empty is an error."""
    where, columns, rows = path.name, None, 0
    types: dict[str, pa.DataType] = {}
    empty: dict[str, list[int]] = {role.name: [] for role in schema.inputs}
    for batch in read_batches(path, BATCH_ROWS):
        if columns is None:
            columns = find(batch.schema.names, where, schema, look=False)
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
    errors = ErrorList()
    for role in schema.inputs:
        with errors.catch():
            refuse_empty(role, empty[role.name], columns, where)
    errors.raise_any()
    return TextFile(path=path, schema=schema, names=tuple(types), types=types, columns=columns, rows=rows)


def _inputs(batch: pa.RecordBatch, schema: Schema, columns: Columns, where: str, before: int) -> dict[str, pa.Array]:
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
    """A type that holds the values of both: JSON may have whole numbers in one batch and others in the next."""
    schemas = [pa.schema([("column", kind)]) for kind in (one, other)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field("column").type
    except pa.ArrowException:
        return pa.string()


def _with_columns(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
    present = set(batch.schema.names)
    arrays = [batch.column(name) if name in present else pa.nulls(batch.num_rows) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))
