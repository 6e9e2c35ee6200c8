"""Reader of the tab-separated files of benchmarks: quotes are ordinary characters, and some files have no header."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.readers.formats import READ_ERRORS, broken, open_bytes
from stillery.data.readers.row_numbers import at
from stillery.errors import UserError

__all__ = ["Rows", "read_raw", "unwrapped"]

BYTES = re.compile(r"""b'(?:[^'\\]|\\.)*'|b"(?:[^"\\]|\\.)*\"""")


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Some rows of a file, their numbers from 1, and the numbers of rows with more or fewer fields than the header."""

    batch: pa.RecordBatch
    numbers: NDArray[np.int64]
    ragged: tuple[int, ...] = ()


def read_raw(
    path: Path, known: Sequence[str], headerless: Sequence[str] = (), batch_rows: int = 10_000
) -> Iterator[Rows]:
    """Stream the rows; the first line is a header if it has one of the `known` names, else the names are `headerless`.

    Rows with more or fewer fields than the header are omitted, and their numbers returned.
    """
    number, names = 0, None
    kept: list[list[str]] = []
    numbers: list[int] = []
    ragged: list[int] = []
    try:
        with io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig") as lines:
            for line in lines:
                fields = line.rstrip("\n").split("\t")
                if fields == [""]:
                    continue
                if names is None:
                    named = [field.strip() for field in fields]
                    if not headerless or set(known) & set(named):
                        names = named
                        continue
                    names = list(headerless)
                number += 1
                if len(fields) != len(names):
                    ragged.append(number)
                    continue
                kept.append(fields)
                numbers.append(number)
                if len(kept) == batch_rows:
                    yield _rows(names, kept, numbers, ragged)
                    kept, numbers, ragged = [], [], []
    except UnicodeDecodeError:
        raise UserError(f"{at(path.name, number + 1)} or soon after: not UTF-8 text; copy the file again") from None
    except READ_ERRORS as error:
        raise broken(path, number, error) from None
    if names is None or not number:
        raise UserError(f"{path}: the file has no rows; copy it again")
    if kept or ragged:
        yield _rows(names, kept, numbers, ragged)


def unwrapped(text: str) -> str:
    r"""Decode a text written as a Python bytes literal, as PAWS-QQP's script does under Python 3; keep others.

    >>> unwrapped(r"b'What is caf\xc3\xa9 ?'"), unwrapped("b'tis")
    ('What is café ?', "b'tis")
    """
    if not BYTES.fullmatch(text):
        return text
    try:
        found: bytes = ast.literal_eval(text)
        return found.decode()
    except (SyntaxError, ValueError):
        return text


def _rows(names: Sequence[str], kept: Sequence[list[str]], numbers: Sequence[int], ragged: Sequence[int]) -> Rows:
    columns = zip(*kept, strict=True) if kept else [[] for _ in names]
    arrays = [pa.array(column, type=pa.large_string()) for column in columns]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(names))
    return Rows(batch=batch, numbers=np.array(numbers, dtype=np.int64), ragged=tuple(ragged))
