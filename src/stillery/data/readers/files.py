"""Streaming of the rows of a file in any supported format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from stillery.data.readers.binary import refuse_binary
from stillery.data.readers.conll import read_conll
from stillery.data.readers.delimited import read_delimited
from stillery.data.readers.encodings import check_encoding, refuse_utf8
from stillery.data.readers.formats import SUFFIXES, WRITTEN, broken, format_of, refuse_bomb
from stillery.data.readers.jsonlines import read_json_lines
from stillery.data.readers.parquet import read_parquet
from stillery.data.readers.plain_text import read_lines
from stillery.data.readers.row_errors import RowErrors
from stillery.data.readers.workbook import read_workbook
from stillery.data.readers.writer import Writer, write_rows
from stillery.errors import UserError
from stillery.lines import listed
from stillery.near_names import missing_file
from stillery.small_files import check_regular

__all__ = ["SUFFIXES", "WRITTEN", "Writer", "read_batches", "write_rows"]


def read_batches(
    path: Path, batch_rows: int = 10_000, encoding: str | None = None, errors: RowErrors | None = None
) -> Iterator[pa.RecordBatch]:
    """Stream the rows of a file; a file that cannot be opened is an error at once, a bad row when it is reached.

    With `errors` that gather, rows that cannot be read are recorded there and become null, and reading continues.
    """
    path = Path(path)
    errors = errors or RowErrors(path.name)
    check_encoding(encoding)
    try:
        if path.is_dir():
            raise UserError(f"{path}: a folder where a file is needed; name one of the files in it")
        if not path.exists():
            raise missing_file(path)
        check_regular(path)
        kind = format_of(path)
        path.open("rb").close()
    except OSError as error:
        raise broken(path, 0, error) from None
    if path.name.lower().endswith(".gz"):
        refuse_bomb(path)
    if kind in ("parquet", "xlsx"):
        if encoding is not None:
            raise UserError(f"{path.name}: --encoding is for text files; this one says itself how text is written")
        return _one_name_each(path, (read_parquet if kind == "parquet" else read_workbook)(path, batch_rows))
    if kind == "conll":
        if encoding is not None:
            raise UserError(f"{path.name}: --encoding is not for CoNLL files, which are UTF-8; save it as UTF-8")
        refuse_binary(path, 1)
        return read_conll(path, batch_rows)
    refuse_binary(path, 1 if kind in ("jsonl", "txt") else 0, encoding)
    refuse_utf8(path, encoding)
    if kind == "jsonl":
        return read_json_lines(path, batch_rows, encoding, errors)
    if kind == "txt":
        return read_lines(path, batch_rows, encoding, errors)
    delimiter = "," if kind == "csv" else "\t"
    return _one_name_each(path, read_delimited(path, delimiter, batch_rows, encoding, errors))


def _one_name_each(path: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(batches):
        if number == 0:
            twice = [name for name, count in Counter(batch.schema.names).items() if count > 1]
            if twice:
                shown = listed(map(repr, twice))
                raise UserError(f"{path.name}, header: more than one column is called {shown}; rename all but one")
        yield batch
