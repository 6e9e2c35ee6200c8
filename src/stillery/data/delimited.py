"""CSV and TSV, read as strings with exact row numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from stillery.data.formats import READ_ERRORS, broken, open_bytes
from stillery.data.rows import at
from stillery.faults import Fault

__all__ = ["read_delimited"]

LONGEST_FIELD = 2**24


def read_delimited(path: Path, delimiter: str, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Stream a CSV or TSV file; every column is a column of strings."""
    row, names = 0, None
    chunk: list[list[str]] = []
    try:
        # TSV comes both ways: with quotes as in CSV, and raw, where a quote is a character like any other.
        quoted = delimiter == "," or _is_quoted(path, delimiter)
        with _open_text(path) as lines:
            for fields in _parse(lines, delimiter, quoted):
                if _is_blank(fields, names):
                    continue
                if names is None:
                    names = _header(path, fields)
                    continue
                row += 1
                if len(fields) != len(names):
                    raise Fault(_ragged(path, row, fields, names, delimiter))
                chunk.append(fields)
                if len(chunk) == batch_rows:
                    yield _batch(path, names, chunk, row)
                    chunk = []
    except csv.Error as error:
        place = at(path.name, 0 if names is None else row + 1)
        raise Fault(f"{place}: {_quoting(error)}; write a quote inside quotes twice") from None
    except READ_ERRORS as error:
        raise broken(path, row, error) from None
    if names is None:
        raise Fault(f"{path}: the file is empty; it needs a header line and rows")
    if chunk:
        yield _batch(path, names, chunk, row)
    elif not row:
        raise Fault(f"{path}: the file has a header but no rows")


def _open_text(path: Path) -> io.TextIOWrapper:
    # Bytes that are not UTF-8 become lone surrogates, which `_batch` finds at no cost and traces to their row.
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", errors="surrogateescape", newline="")


def _parse(lines: Iterable[str], delimiter: str, quoted: bool) -> Iterator[list[str]]:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
    if quoted:
        return csv.reader(lines, delimiter=delimiter, strict=True)
    return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)


def _is_blank(fields: Sequence[str], names: Sequence[str] | None) -> bool:
    if not fields:
        return True
    return len(fields) == 1 and not fields[0].strip() and (names is None or len(names) > 1)


def _count(path: Path, delimiter: str, quoted: bool) -> int:
    """The number of rows when all are as wide as the header, -1 when they are not."""
    rows, names = 0, None
    with _open_text(path) as lines:
        for fields in _parse(lines, delimiter, quoted):
            if _is_blank(fields, names):
                continue
            if names is None:
                names = fields
            elif len(fields) != len(names):
                return -1
            else:
                rows += 1
    return rows


def _is_quoted(path: Path, delimiter: str) -> bool:
    # A stray quote can swallow whole lines and still leave a well-formed table; the reading with more rows is the
    # right one, because a really quoted line break makes the raw reading ragged.
    try:
        quoted = _count(path, delimiter, quoted=True)
    except csv.Error:
        return False
    try:
        return quoted >= _count(path, delimiter, quoted=False)
    except csv.Error:
        return True


def _header(path: Path, fields: Sequence[str]) -> list[str]:
    names = [field.strip() for field in fields]
    if any(_undecodable(name) for name in names):
        raise Fault(f"{at(path.name, 0)}: not UTF-8 text; save the file as UTF-8")
    return names


def _batch(path: Path, names: Sequence[str], chunk: Sequence[list[str]], last: int) -> pa.RecordBatch:
    try:
        arrays = [pa.array(column, type=pa.large_string()) for column in zip(*chunk, strict=True)]
    except UnicodeEncodeError:
        row = last - len(chunk) + 1 + next(i for i, fields in enumerate(chunk) if any(map(_undecodable, fields)))
        raise Fault(f"{at(path.name, row)}: not UTF-8 text; save the file as UTF-8") from None
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _undecodable(field: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in field)


def _ragged(path: Path, row: int, fields: Sequence[Any], names: Sequence[str], delimiter: str) -> str:
    mark = "comma" if delimiter == "," else "tab"
    cure = f"put a field that holds a {mark} in quotes" if len(fields) > len(names) else f"is a {mark} missing?"
    return f"{at(path.name, row)}: {len(fields)} fields where the header has {len(names)}; {cure}"


def _quoting(error: csv.Error) -> str:
    text = str(error)
    if "field limit" in text:
        return f"a field longer than {LONGEST_FIELD} characters, so probably a quote that is never closed"
    if "unexpected end" in text:
        return "a quote is opened and never closed"
    if "expected after" in text:
        return "text after a closing quote"
    return text
