"""One way to stream the rows of any supported file, whatever its format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from stillery.data.readers.binary import refuse_binary
from stillery.data.readers.conll import read_conll
from stillery.data.readers.delimited import read_delimited
from stillery.data.readers.formats import SUFFIXES, WRITTEN, broken, format_of
from stillery.data.readers.jsonlines import read_json_lines
from stillery.data.readers.parquet import read_parquet
from stillery.data.readers.plain_text import read_lines
from stillery.data.readers.writer import Writer, write_rows
from stillery.errors import UserError

__all__ = ["SUFFIXES", "WRITTEN", "Writer", "read_batches", "write_rows"]


def read_batches(path: Path, batch_rows: int = 10_000) -> Iterator[pa.RecordBatch]:
    """Stream the rows of a file; a file that cannot be opened is an error at once, a bad row when it is reached."""
    path = Path(path)
    try:
        if path.is_dir():
            raise UserError(f"{path}: a folder where a file is needed; name one of the files in it")
        if not path.exists():
            raise UserError(f"no such file: {path}")
        kind = format_of(path)
        path.open("rb").close()
    except OSError as error:
        raise broken(path, 0, error) from None
    if kind == "parquet":
        return _one_name_each(path, read_parquet(path, batch_rows))
    refuse_binary(path, 1 if kind in ("jsonl", "txt", "conll") else 0)
    if kind == "conll":
        return read_conll(path, batch_rows)
    if kind == "jsonl":
        return read_json_lines(path, batch_rows)
    if kind == "txt":
        return read_lines(path, batch_rows)
    return _one_name_each(path, read_delimited(path, "," if kind == "csv" else "\t", batch_rows))


def _one_name_each(path: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(batches):
        if number == 0:
            twice = [name for name, count in Counter(batch.schema.names).items() if count > 1]
            if twice:
                shown = ", ".join(repr(name) for name in twice)
                raise UserError(f"{path.name}, header: more than one column is called {shown}; rename all but one")
        yield batch
