"""Reader of CSV and TSV files as strings, with exact row numbers in errors."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stillery.data.readers.encodings import not_text, open_text
from stillery.data.readers.formats import READ_ERRORS, broken
from stillery.data.readers.row_errors import RowErrors
from stillery.data.readers.row_numbers import at
from stillery.errors import UserError

__all__ = ["other_separator", "read_delimited"]

LONGEST_FIELD = 2**24
LEAST_SHARE = 0.5
SEPARATORS = {";": "';'", "\t": "a tab", "|": "'|'", ",": "a comma"}
NAMES = {";": "semicolon", "\t": "tab", "|": "bar", ",": "comma"}


def read_delimited(
    path: Path, delimiter: str, batch_rows: int, encoding: str | None, errors: RowErrors
) -> Iterator[pa.RecordBatch]:
    """Stream a CSV or TSV file; every column is a column of strings.

    If the header is a single column that contains another separator, the file is read with that one.
    """
    row, names = 0, None
    header: list[str] = []
    chunk: list[list[str] | list[None]] = []
    try:
        delimiter = _separator(path, delimiter, encoding)
        # TSV exists with quoting as in CSV, and raw, where a quote is an ordinary character.
        quoted = delimiter in ",;" or _is_quoted(path, delimiter, encoding)
        with open_text(path, encoding) as lines:
            for fields in _parse(lines, delimiter, quoted):
                if _is_blank(fields, names):
                    continue
                if names is None:
                    header, names = fields, _header(path, fields, encoding)
                    continue
                row += 1
                if len(fields) != len(names):
                    wrong = _ragged(fields, names, delimiter)
                elif fields == header and len(header) > 1:
                    wrong = "the header line once more; remove the row"
                else:
                    wrong = ""
                if wrong:
                    errors.add(row, wrong)
                chunk.append([None] * len(names) if wrong else fields)
                if len(chunk) == batch_rows:
                    yield _batch(path, names, chunk, row, encoding, errors)
                    chunk = []
    except csv.Error as error:
        place = at(path.name, 0 if names is None else row + 1)
        cure = other_separator(names or []) or "write a quote inside quotes twice"
        raise UserError(f"{place}: {_quoting(error)}; {cure}") from None
    except UnicodeError:
        place = at(path.name, 0 if names is None else row + 1)
        raise UserError(f"{place}: {not_text(path, encoding)}") from None
    except READ_ERRORS as error:
        raise broken(path, row, error) from None
    if names is None:
        raise UserError(f"{path}: the file is empty; it needs a header line and rows")
    if chunk:
        yield _batch(path, names, chunk, row, encoding, errors)
    elif not row:
        raise UserError(f"{path}: the file has a header but no rows")


def other_separator(names: Sequence[str]) -> str:
    """A hint for a header of one column that contains another separator; empty for other headers.

    >>> other_separator(["text;label"])
    "the header is one column 'text;label': the separator looks like ';', so save with commas (.csv) or tabs (.tsv)"
    """
    mark = next((mark for mark in SEPARATORS if len(names) == 1 and mark in names[0]), None)
    if mark is None:
        return ""
    cure = {"\t": "name the file .tsv", ",": "name the file .csv"}.get(mark, "save with commas (.csv) or tabs (.tsv)")
    return f"the header is one column {names[0][:40]!r}: the separator looks like {SEPARATORS[mark]}, so {cure}"


def _separator(path: Path, usual: str, encoding: str | None) -> str:
    """Detect the column separator: the usual one, unless the header is one column that contains another.

    Of several candidates, the one that fits the largest share of rows is taken if it fits at least half of them; else
    the file has one column.
    """
    try:
        with open_text(path, encoding) as lines:
            # Misplaced quotes with this separator are not an error here.
            rows = csv.reader(lines, delimiter=usual)
            header = next((fields for fields in rows if not _is_blank(fields, None)), [])
    except (csv.Error, UnicodeError, *READ_ERRORS):
        return usual
    if len(header) != 1:
        return usual
    marks = [mark for mark in SEPARATORS if mark != usual and mark in header[0].strip()]
    shares = {mark: _share(path, mark, encoding) for mark in marks}
    best = max(marks, key=shares.__getitem__, default=usual)
    return best if shares.get(best, 0) >= LEAST_SHARE else usual


def _share(path: Path, delimiter: str, encoding: str | None) -> float:
    """The share of rows with as many fields as the header for this separator, with lenient quoting."""
    rows, fitting, width = 0, 0, None
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
    try:
        with open_text(path, encoding) as lines:
            for fields in csv.reader(lines, delimiter=delimiter):
                if _is_blank(fields, None):
                    continue
                if width is None:
                    width = len(fields)
                else:
                    rows, fitting = rows + 1, fitting + (len(fields) == width)
    except (csv.Error, UnicodeError, *READ_ERRORS):
        pass
    return fitting / max(rows, 1)


def _parse(lines: Iterable[str], delimiter: str, quoted: bool) -> Iterator[list[str]]:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
    if quoted:
        return csv.reader(lines, delimiter=delimiter, strict=True)
    return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)


def _is_blank(fields: Sequence[str], names: Sequence[str] | None) -> bool:
    if not fields:
        return True
    return len(fields) == 1 and not fields[0].strip() and (names is None or len(names) > 1)


def _fits(path: Path, delimiter: str, quoted: bool, encoding: str | None) -> tuple[bool, int]:
    """The fit of a way of parsing: whether all rows match the header's width, and the rows before an error."""
    rows, names = 0, None
    try:
        with open_text(path, encoding) as lines:
            for fields in _parse(lines, delimiter, quoted):
                if _is_blank(fields, names):
                    continue
                if names is None:
                    names = fields
                elif len(fields) != len(names):
                    return False, rows
                else:
                    rows += 1
    except (csv.Error, UnicodeError):
        return False, rows
    except READ_ERRORS:
        # A truncated file says nothing about quoting; the row is reported when the rows are read.
        pass
    return True, rows


def _is_quoted(path: Path, delimiter: str, encoding: str | None) -> bool:
    # A stray quote can swallow whole lines and still leave a well-formed table; the parse with more rows is the right
    # one, because a genuinely quoted line break makes the raw parse ragged.
    return _fits(path, delimiter, True, encoding) >= _fits(path, delimiter, False, encoding)


def _header(path: Path, fields: Sequence[str], encoding: str | None) -> list[str]:
    # Files that were concatenated or saved twice may start with two byte order marks; the decoder removes one.
    names = [field.removeprefix("\ufeff").strip() for field in fields]
    wrong = _wrong(path, names, encoding)
    if wrong:
        raise UserError(f"{at(path.name, 0)}: {wrong}")
    return names


def _batch(
    path: Path,
    names: Sequence[str],
    chunk: list[list[str] | list[None]],
    last: int,
    encoding: str | None,
    errors: RowErrors,
) -> pa.RecordBatch:
    try:
        arrays = _arrays(chunk)
        clean = not any(pc.any(pc.match_substring(array, "\0")).as_py() for array in arrays)
    except UnicodeEncodeError:
        clean = False
    if not clean:
        first = last - len(chunk) + 1
        for place, fields in enumerate(chunk):
            wrong = _wrong(path, [field for field in fields if field is not None], encoding)
            if wrong:
                errors.add(first + place, wrong)
                chunk[place] = [None] * len(names)
        arrays = _arrays(chunk)
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _arrays(chunk: Sequence[list[str] | list[None]]) -> list[pa.Array]:
    return [pa.array(column, type=pa.large_string()) for column in zip(*chunk, strict=True)]


def _wrong(path: Path, fields: Sequence[str], encoding: str | None) -> str:
    """The error in the characters of a row; empty if there is none."""
    if any("\ud800" <= letter <= "\udfff" for field in fields for letter in field):
        return not_text(path, encoding)
    if any("\0" in field for field in fields):
        return "a NUL byte, which no text has; remove it, or save the file as UTF-8 text"
    return ""


def _ragged(fields: Sequence[Any], names: Sequence[str], delimiter: str) -> str:
    mark = NAMES[delimiter]
    if other_separator(names):
        cure = other_separator(names)
    elif len(fields) > len(names):
        cure = f"put a field that holds a {mark} in quotes"
    else:
        cure = f"is a {mark} missing?"
    return f"{len(fields)} fields where the header has {len(names)}; {cure}"


def _quoting(error: csv.Error) -> str:
    text = str(error)
    if "field limit" in text:
        return f"a field longer than {LONGEST_FIELD} characters, so probably a quote that is never closed"
    if "unexpected end" in text:
        return "a quote is opened and never closed"
    if "expected after" in text:
        return "text after a closing quote"
    return text
