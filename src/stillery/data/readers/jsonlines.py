"""Reader of JSON Lines and of single JSON values that hold rows; values keep their JSON types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from stillery.data.readers.encodings import byte_lines, not_text
from stillery.data.readers.formats import READ_ERRORS, broken
from stillery.data.readers.json_values import Row, parsed, rows_of_array, rows_of_columns
from stillery.data.readers.row_errors import RowErrors
from stillery.data.readers.row_numbers import NESTED, at
from stillery.errors import UserError

__all__ = ["read_json_lines", "typed_rows"]

BOM = b"\xef\xbb\xbf"


def read_json_lines(path: Path, batch_rows: int, encoding: str | None, errors: RowErrors) -> Iterator[pa.RecordBatch]:
    """Stream JSON Lines, or the rows of one large JSON value; missing keys are null."""
    row = 0
    chunk: list[dict[str, Any]] = []
    try:
        for record in _records(path, encoding):
            row += 1
            if isinstance(record, str):
                errors.add(row, record)
            chunk.append({} if isinstance(record, str) else record)
            if len(chunk) == batch_rows:
                yield _batch(path, chunk, row, errors)
                chunk = []
    except UnicodeError:
        raise UserError(f"{at(path.name, row + 1)}: {not_text(path, encoding)}") from None
    except READ_ERRORS as error:
        raise broken(path, row, error) from None
    if chunk:
        yield _batch(path, chunk, row, errors)
    elif not row:
        raise UserError(f"{path}: the file is empty; it needs one JSON object per line")


def _records(path: Path, encoding: str | None) -> Iterator[Row]:
    """Iterate over the rows; a row that cannot be read is replaced by an error message."""
    with byte_lines(path, encoding) as lines:
        filled = _filled(lines)
        first = next(filled, b"").removeprefix(BOM).strip() or next(filled, b"").strip()
        if not first:
            return
        if first.startswith(b"["):
            yield from rows_of_array(path, encoding, b"\n".join([first, *filled]))
            return
        row, listed = parsed(first, path, encoding), ".json" in path.suffixes
        if isinstance(row, str) and listed:
            # An object over several lines: parse it together with the lines after the first.
            lines_of_it = [first, *filled]
            whole = parsed(b"\n".join(lines_of_it), path, encoding)
            columns = None if isinstance(whole, str) else rows_of_columns(whole, lists=True)
            yield from columns or (parsed(line, path, encoding) for line in lines_of_it)
            return
        columns = None if isinstance(row, str) else rows_of_columns(row, lists=listed)
        second = next(filled, b"") if columns is not None else b""
        yield from [row] if columns is None or second else columns
        for line in chain(filter(None, [second]), filled):
            yield parsed(line, path, encoding)


def _filled(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The stripped lines, without blank ones."""
    return (content for line in lines if (content := line.strip()))


def _batch(path: Path, chunk: list[dict[str, Any]], last: int, errors: RowErrors) -> pa.RecordBatch:
    names = list(dict.fromkeys(name for record in chunk for name in record))
    first = last - len(chunk) + 1
    if not names:
        # None of them could be read, so the columns are unknown.
        raise UserError(*errors.lines())
    try:
        return typed_rows(chunk, names, first)
    except UnicodeEncodeError:
        for place, record in enumerate(chunk):
            if not _is_text(record):
                errors.add(first + place, "half of a surrogate pair (such as \\ud83d); write whole characters")
                chunk[place] = {}
    return _batch(path, chunk, last, errors)


def typed_rows(chunk: Sequence[dict[str, Any]], names: Sequence[str], first: int) -> pa.RecordBatch:
    """Convert rows to columns with the types of their values; `first` is the number of the first row."""
    columns = [_column(name, [record.get(name) for record in chunk], first) for name in names]
    return pa.RecordBatch.from_arrays(
        [array for array, _ in columns], schema=pa.schema([field for _, field in columns])
    )


def _column(name: str, values: list[Any], first: int) -> tuple[pa.Array, pa.Field]:
    if all(value is None or isinstance(value, str) for value in values):
        return pa.array(values, type=pa.large_string()), pa.field(name, pa.large_string())
    try:
        array = pa.array(values)
        return array, pa.field(name, array.type)
    except UnicodeEncodeError:
        raise
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # Types differ between rows: keep the values as text, and let the reader of the column judge.
        nested = next((first + i for i, value in enumerate(values) if isinstance(value, (dict, list))), None)
        array = pa.array([_as_text(value) for value in values], type=pa.large_string())
        return array, pa.field(name, array.type, metadata=None if nested is None else {NESTED: str(nested)})


def _as_text(value: Any) -> str | None:
    if value is None or value != value:
        return None
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def _is_text(record: dict[str, Any]) -> bool:
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
