"""Reader of plain text files: one text per line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from stillery.data.readers.encodings import not_text, open_text
from stillery.data.readers.formats import READ_ERRORS, broken
from stillery.data.readers.row_errors import RowErrors
from stillery.data.readers.row_numbers import INVISIBLE, at
from stillery.errors import UserError

__all__ = ["read_lines"]

NAME = "text"


def read_lines(path: Path, batch_rows: int, encoding: str | None, errors: RowErrors) -> Iterator[pa.RecordBatch]:
    """Stream a text file as one column `text`; blank lines are skipped, and errors name the line of the file."""
    number, found = 0, 0
    chunk: list[str | None] = []
    try:
        with open_text(path, encoding, newline=None) as lines:
            for line in lines:
                number += 1
                text = line.removesuffix("\n")
                if not text.strip().strip(INVISIBLE):
                    continue
                found += 1
                wrong = _wrong(path, text, encoding)
                if wrong:
                    errors.add(number, wrong, position=found)
                chunk.append(None if wrong else text)
                if len(chunk) == batch_rows:
                    yield _batch(chunk)
                    chunk = []
    except UnicodeError:
        raise UserError(f"{at(path.name, number + 1)}: {not_text(path, encoding)}") from None
    except READ_ERRORS as error:
        raise broken(path, number, error) from None
    if chunk:
        yield _batch(chunk)
    elif not found:
        raise UserError(f"{path}: the file is empty; it needs a text on each line")


def _wrong(path: Path, text: str, encoding: str | None) -> str:
    """The error in a line; empty if there is none."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return not_text(path, encoding)
    if "\0" in text:
        return "a NUL byte, which no text has; remove it, or save the file as UTF-8 text"
    if text.strip().casefold() == "nan":
        return f"the text is {text.strip()!r}, a missing value; remove the line"
    return ""


def _batch(chunk: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(chunk, type=pa.large_string())], names=[NAME])
