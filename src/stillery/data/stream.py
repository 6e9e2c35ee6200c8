"""A file's texts a batch at a time, for labelling files of any size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from stillery.data.columns import Columns, find
from stillery.data.examples import Examples
from stillery.data.files import read_batches
from stillery.data.rows import at_rows
from stillery.data.table import empty_rows, text_column
from stillery.faults import Fault, Gathered

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


def open_texts(path: Path, *, text: str | None = None, text_pair: str | None = None) -> TextFile:
    """Look through a whole file before any work is done on it; every text that is missing or empty is a fault."""
    where, columns, rows = path.name, None, 0
    types: dict[str, pa.DataType] = {}
    empty: dict[str, list[int]] = {}
    for batch in read_batches(path, BATCH_ROWS):
        if columns is None:
            columns = find(batch.schema.names, where, text, text_pair, None, need_label=False)
        for name, values in _texts(batch, columns, where, rows).items():
            empty.setdefault(name, []).extend(rows + row for row in empty_rows([values]))
        for field in batch.schema:
            empty_here = batch.column(field.name).null_count == batch.num_rows
            types[field.name] = _common(types.get(field.name, pa.null()), pa.null() if empty_here else field.type)
        rows += batch.num_rows
    if columns is None:
        raise Fault(f"{path}: the file has no rows")
    faults = Gathered()
    for name, at in empty.items():
        if at:
            faults.add(f"{at_rows(where, at)}: the text in column {name!r} is empty; fill it in or remove the row")
    faults.raise_any()
    return TextFile(path=path, names=tuple(types), types=types, columns=columns, rows=rows)


def _texts(batch: pa.RecordBatch, columns: Columns, where: str, before: int) -> dict[str, pa.Array]:
    texts = {columns.text: text_column(batch, columns.text, where, before, "--text")}
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
