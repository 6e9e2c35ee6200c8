"""Reader of Parquet files with their types; text is checked to be valid UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stillery.data.readers.formats import READ_ERRORS
from stillery.data.readers.row_numbers import at
from stillery.errors import UserError

__all__ = ["read_parquet"]


def read_parquet(path: Path, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Stream a Parquet file."""
    row = 0
    try:
        with pq.ParquetFile(path) as file:
            if file.metadata.num_rows == 0:
                raise UserError(f"{path}: the file has no rows")
            for batch in file.iter_batches(batch_size=batch_rows):
                _check(path, batch, row)
                row += batch.num_rows
                yield batch
    except (pa.ArrowException, UnicodeDecodeError, *READ_ERRORS) as error:
        place = at(path.name, row + 1) if row else str(path)
        reason = str(error).split("\n")[0]
        raise UserError(f"{place}: not a readable Parquet file ({reason}); write it again") from None


def _check(path: Path, batch: pa.RecordBatch, before: int) -> None:
    """Raise UserError for text that is not UTF-8: Arrow reads it unchecked and fails when it is used."""
    if _is_valid(batch):
        return
    columns = zip(batch.schema.names, batch.columns, strict=True)
    row, name = min((_first_wrong(column), name) for name, column in columns if not _is_valid(column))
    place = at(path.name, before + row)
    raise UserError(f"{place}: column {name!r} holds bytes that are not UTF-8 text; write the file again")


def _first_wrong(column: pa.Array) -> int:
    # A slice of a dictionary column still has the whole dictionary.
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    return next((row + 1 for row in range(len(plain)) if not _is_valid(plain.slice(row, 1))), 1)


def _is_valid(values: pa.RecordBatch | pa.Array) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
