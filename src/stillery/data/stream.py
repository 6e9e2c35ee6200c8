"""A file's texts a batch at a time, for labelling files of any size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from stillery.data.columns import find
from stillery.data.examples import Examples
from stillery.data.files import read_batches
from stillery.data.rows import at_rows
from stillery.data.table import empty_rows, text_column
from stillery.faults import Fault

__all__ = ["TextBatch", "stream_texts"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TextBatch:
    """Some rows of a file as they are, and their texts."""

    batch: pa.RecordBatch
    examples: Examples


def stream_texts(
    path: Path, *, text: str | None = None, text_pair: str | None = None, batch_rows: int = 1000
) -> Iterator[TextBatch]:
    """Yield a file's rows with their texts; a text that is missing or empty is a fault with its row."""
    where, columns, rows = path.name, None, 0
    for batch in read_batches(path, batch_rows):
        if columns is None:
            columns = find(batch.schema.names, where, text, text_pair, None, need_label=False)
        texts = text_column(batch, columns.text, where, rows, "--text")
        pairs = None
        if columns.text_pair is not None:
            pairs = text_column(batch, columns.text_pair, where, rows, "--text-pair")
        for values, name in ((texts, columns.text), (pairs, columns.text_pair)):
            empty = [rows + row for row in empty_rows([values])] if values is not None else []
            if empty:
                raise Fault(
                    f"{at_rows(where, empty)}: the text in column {name!r} is empty; fill it in or remove the row"
                )
        ids = tuple(str(rows + row) for row in range(1, batch.num_rows + 1))
        rows += batch.num_rows
        yield TextBatch(batch=batch, examples=Examples(ids=ids, texts=texts, pairs=pairs, labels=None, source=where))
