"""A file's texts a batch at a time, for labelling files of any size."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from stillery.data.readers.files import read_batches
from stillery.data.readers.row_numbers import at_rows
from stillery.data.schema.columns import Columns, find
from stillery.data.schema.examples import Examples
from stillery.data.schema.table import empty_rows, text_column
from stillery.data.schema.text_table import find_text_columns
from stillery.errors import ErrorList, UserError

__all__ = ["TextBatch", "TextFile", "open_texts"]

BATCH_ROWS = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class TextBatch:
    """Some rows of a file as they are, and their texts."""

    batch: pa.RecordBatch
    examples: Examples


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A file that was looked through: its columns and their types, which of them hold the texts, and its rows."""

    path: Path
    names: tuple[str, ...]
    types: dict[str, pa.DataType]
    columns: Columns
    rows: int

    def batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[TextBatch]:
        """The rows, each batch with every column; what a row of JSON lacks is null."""
        before = 0
        for batch in read_batches(self.path, batch_rows):
            texts = _texts(batch, self.columns, self.path.name, before)
            ids = tuple(str(before + row) for row in range(1, batch.num_rows + 1))
            before += batch.num_rows
            yield TextBatch(
                batch=_with_columns(batch, self.names),
                examples=Examples(
                    ids=ids,
                    texts=texts[self.columns.text],
                    pairs=texts[self.columns.text_pair] if self.columns.text_pair is not None else None,
                    labels=None,
                    source=self.path.name,
                ),
            )

    def column(self, rows: TextBatch, name: str) -> list[Any] | pa.Array:
        """A column's values as they are; as text where the file mixes kinds that have nothing in common."""
        column, kind = rows.batch.column(name), self.types[name]
        if column.type == kind:
            return column
        values: list[Any] = column.to_pylist()
        as_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return [_text(value) for value in values] if as_text else values


def open_texts(path: Path, *, text: str | None = None, text_pair: str | None = None, sources: bool = False) -> TextFile:
    """Look through a whole file before any work is done on it; every text that is missing or empty is an error.

    With `sources` the text is what another is to be written from, and its column has the usual names of those.
    """
    where, columns, rows = path.name, None, 0
    types: dict[str, pa.DataType] = {}
    empty: dict[str, list[int]] = {}
    for batch in read_batches(path, BATCH_ROWS):
        if columns is None:
            columns = _columns(batch.schema.names, where, text, text_pair, sources)
        for name, values in _texts(batch, columns, where, rows, sources).items():
            empty.setdefault(name, []).extend(rows + row for row in empty_rows([values]))
        for field in batch.schema:
            empty_here = batch.column(field.name).null_count == batch.num_rows
            types[field.name] = _common(types.get(field.name, pa.null()), pa.null() if empty_here else field.type)
        rows += batch.num_rows
    if columns is None:
        raise UserError(f"{path}: the file has no rows")
    errors = ErrorList()
    for name, at in empty.items():
        if at:
            errors.add(f"{at_rows(where, at)}: the text in column {name!r} is empty; fill it in or remove the row")
    errors.raise_any()
    return TextFile(path=path, names=tuple(types), types=types, columns=columns, rows=rows)


def _columns(names: Sequence[str], where: str, text: str | None, text_pair: str | None, sources: bool) -> Columns:
    if not sources:
        return find(names, where, text, text_pair, None, need_label=False)
    found = find_text_columns(names, where, text, need_target=False)
    return Columns(text=found.source, text_pair=None, label=None, id=None)


def _text(value: Any) -> str | None:
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value if value is None else str(value)


def _texts(
    batch: pa.RecordBatch, columns: Columns, where: str, before: int, sources: bool = False
) -> dict[str, pa.Array]:
    texts = {columns.text: text_column(batch, columns.text, where, before, "--source" if sources else "--text")}
    if columns.text_pair is not None:
        texts[columns.text_pair] = text_column(batch, columns.text_pair, where, before, "--text-pair")
    return texts


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
