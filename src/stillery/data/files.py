"""One way to stream the rows of any supported file, whatever its format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stillery.data.delimited import read_delimited
from stillery.data.formats import READ_ERRORS, SUFFIXES, broken, format_of, open_bytes
from stillery.data.jsonlines import read_json_lines
from stillery.data.rows import at
from stillery.data.writing import Writer, write_rows
from stillery.faults import Fault

__all__ = ["SUFFIXES", "Writer", "read_batches", "write_rows"]

WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_batches(path: Path, batch_rows: int = 10_000) -> Iterator[pa.RecordBatch]:
    """Stream the rows of a file; a file that cannot be opened is a fault at once, a bad row when it is reached."""
    path = Path(path)
    if path.is_dir():
        raise Fault(f"{path}: a folder where a file is needed; name one of the files in it")
    if not path.exists():
        raise Fault(f"no such file: {path}")
    kind = format_of(path)
    try:
        if path.stat().st_size == 0:
            raise Fault(f"{path}: the file is empty; it needs a header line and rows")
        if kind != "parquet":
            _refuse_binary(path)
    except READ_ERRORS as error:
        raise broken(path, 0, error) from None
    if kind == "parquet":
        return _one_name_each(path, _read_parquet(path, batch_rows))
    if kind == "jsonl":
        return read_json_lines(path, batch_rows)
    return _one_name_each(path, read_delimited(path, "," if kind == "csv" else "\t", batch_rows))


def _refuse_binary(path: Path) -> None:
    with open_bytes(path) as stream:
        start = stream.read(4096)
    if start.startswith(WIDE_MARKS) or b"\0" in start:
        raise Fault(f"{at(path.name, 1)}: not UTF-8 text but binary or UTF-16; save it as UTF-8 text")


def _read_parquet(path: Path, batch_rows: int) -> Iterator[pa.RecordBatch]:
    row = 0
    try:
        with pq.ParquetFile(path) as file:
            if file.metadata.num_rows == 0:
                raise Fault(f"{path}: the file has columns but no rows")
            for batch in file.iter_batches(batch_size=batch_rows):
                row += batch.num_rows
                yield batch
    except (pa.ArrowException, *READ_ERRORS) as error:
        place = at(path.name, row + 1) if row else str(path)
        reason = str(error).split("\n")[0]
        raise Fault(f"{place}: not a readable Parquet file ({reason}); write it again") from None


def _one_name_each(path: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(batches):
        if number == 0:
            twice = [name for name, count in Counter(batch.schema.names).items() if count > 1]
            if twice:
                shown = ", ".join(repr(name) for name in twice)
                raise Fault(f"{path.name}, header: more than one column is called {shown}; rename all but one")
        yield batch
