"""CSV and TSV, read as strings with exact row numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stillery.data.readers.formats import READ_ERRORS, broken, open_bytes
from stillery.data.readers.row_numbers import at
from stillery.errors import UserError

__all__ = ["other_separator", "read_delimited"]

LONGEST_FIELD = 2**24
SEPARATORS = {";": "';'", "\t": "a tab", "|": "'|'", ",": "a comma"}


def read_delimited(path: Path, delimiter: str, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Stream a CSV or TSV file; every column is a column of strings."""
    row, names = 0, None
    header: list[str] = []
    chunk: list[list[str]] = []
    try:
        # TSV comes both ways: with quotes as in CSV, and raw, where a quote is a character like any other.
        quoted = delimiter == "," or _is_quoted(path, delimiter)
        with _open_text(path) as lines:
            for fields in _parse(lines, delimiter, quoted):
                if _is_blank(fields, names):
                    continue
                if names is None:
                    header, names = fields, _header(path, fields)
                    continue
                row += 1
                if len(fields) != len(names):
                    raise UserError(_ragged(path, row, fields, names, delimiter))
                if fields == header and len(header) > 1:
                    raise UserError(f"{at(path.name, row)}: the header line once more; remove the row")
                chunk.append(fields)
                if len(chunk) == batch_rows:
                    yield _batch(path, names, chunk, row)
                    chunk = []
    except csv.Error as error:
        place = at(path.name, 0 if names is None else row + 1)
        cure = other_separator(names or []) or "write a quote inside quotes twice"
        raise UserError(f"{place}: {_quoting(error)}; {cure}") from None
    except READ_ERRORS as error:
        raise broken(path, row, error) from None
    if names is None:
        raise UserError(f"{path}: the file is empty; it needs a header line and rows")
    if chunk:
        yield _batch(path, names, chunk, row)
    elif not row:
        raise UserError(f"{path}: the file has a header but no rows")


def other_separator(names: Sequence[str]) -> str:
    """What to do where a header of one column shows that the columns are separated by something else, else nothing.

    >>> other_separator(["text;label"])
    "the header is one column 'text;label': the separator looks like ';', so save with commas (.csv) or tabs (.tsv)"
    """
    mark = next((mark for mark in SEPARATORS if len(names) == 1 and mark in names[0]), None)
    if mark is None:
        return ""
    cure = {"\t": "name the file .tsv", ",": "name the file .csv"}.get(mark, "save with commas (.csv) or tabs (.tsv)")
    return f"the header is one column {names[0][:40]!r}: the separator looks like {SEPARATORS[mark]}, so {cure}"


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


def _fits(path: Path, delimiter: str, quoted: bool) -> tuple[bool, int]:
    """How well a reading fits: whether all rows are as wide as the header, and how many rows come before an error."""
    rows, names = 0, None
    try:
        with _open_text(path) as lines:
            for fields in _parse(lines, delimiter, quoted):
                if _is_blank(fields, names):
                    continue
                if names is None:
                    names = fields
                elif len(fields) != len(names):
                    return False, rows
                else:
                    rows += 1
    except csv.Error:
        return False, rows
    except READ_ERRORS:
        # Bytes that stop coming are no matter of quoting; the row is named when the rows are read.
        pass
    return True, rows


def _is_quoted(path: Path, delimiter: str) -> bool:
    # A stray quote can swallow whole lines and still leave a well-formed table; the reading with more rows is the
    # right one, because a really quoted line break makes the raw reading ragged.
    return _fits(path, delimiter, quoted=True) >= _fits(path, delimiter, quoted=False)


def _header(path: Path, fields: Sequence[str]) -> list[str]:
    # Files that were joined or saved twice may start with two marks, of which the decoder takes one.
    names = [field.removeprefix("\ufeff").strip() for field in fields]
    wrong = _wrong(names)
    if wrong:
        raise UserError(f"{at(path.name, 0)}: {wrong}")
    return names


def _batch(path: Path, names: Sequence[str], chunk: Sequence[list[str]], last: int) -> pa.RecordBatch:
    try:
        arrays = [pa.array(column, type=pa.large_string()) for column in zip(*chunk, strict=True)]
        clean = not any(pc.any(pc.match_substring(array, "\0")).as_py() for array in arrays)
    except UnicodeEncodeError:
        clean = False
    if not clean:
        first = last - len(chunk) + 1
        row, wrong = next((first + i, wrong) for i, fields in enumerate(chunk) if (wrong := _wrong(fields)))
        raise UserError(f"{at(path.name, row)}: {wrong}")
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _wrong(fields: Sequence[str]) -> str:
    """What is wrong with the characters of a row, if something is."""
    if any("\ud800" <= letter <= "\udfff" for field in fields for letter in field):
        return "not UTF-8 text; save the file as UTF-8"
    if any("\0" in field for field in fields):
        return "a NUL byte, which no text has; remove it, or save the file as UTF-8 text"
    return ""


def _ragged(path: Path, row: int, fields: Sequence[Any], names: Sequence[str], delimiter: str) -> str:
    mark = "comma" if delimiter == "," else "tab"
    if other_separator(names):
        cure = other_separator(names)
    elif len(fields) > len(names):
        cure = f"put a field that holds a {mark} in quotes"
    else:
        cure = f"is a {mark} missing?"
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
