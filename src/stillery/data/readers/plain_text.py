"""Plain text: one text per line."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from stillery.data.readers.formats import READ_ERRORS, broken, open_bytes
from stillery.data.readers.row_numbers import INVISIBLE, at
from stillery.errors import UserError

__all__ = ["read_lines"]

NAME = "text"


def read_lines(path: Path, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Stream a text file as one column `text`; blank lines are skipped, and errors name the line of the file."""
    number, found = 0, False
    chunk: list[str] = []
    try:
        # Bytes that are not UTF-8 become lone surrogates, which are found line by line.
        with io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", errors="surrogateescape") as lines:
            for line in lines:
                number += 1
                text = line.removesuffix("\n")
                if not text.strip().strip(INVISIBLE):
                    continue
                found = True
                _check(path, number, text)
                chunk.append(text)
                if len(chunk) == batch_rows:
                    yield _batch(chunk)
                    chunk = []
    except READ_ERRORS as error:
        raise broken(path, number, error) from None
    if chunk:
        yield _batch(chunk)
    elif not found:
        raise UserError(f"{path}: the file is empty; it needs a text on each line")


def _check(path: Path, number: int, text: str) -> None:
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UserError(f"{at(path.name, number)}: not UTF-8 text; save the file as UTF-8")
    if "\0" in text:
        raise UserError(
            f"{at(path.name, number)}: a NUL byte, which no text has; remove it, or save the file as UTF-8 text"
        )
    if text.strip().casefold() == "nan":
        raise UserError(f"{at(path.name, number)}: the text is {text.strip()!r}, a missing value; remove the line")


def _batch(chunk: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(chunk, type=pa.large_string())], names=[NAME])
