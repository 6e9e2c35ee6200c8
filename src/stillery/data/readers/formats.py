"""Known file formats by suffix, and opening of plain and gzipped files."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import IO, cast

from stillery.data.readers.row_numbers import at
from stillery.errors import UserError

__all__ = ["READ_ERRORS", "SUFFIXES", "WRITTEN", "broken", "format_of", "open_bytes", "stem"]

TEXT = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "txt",
    ".conll": "conll",
    ".bio": "conll",
    ".iob": "conll",
}
SUFFIXES: dict[str, str] = {
    **TEXT, **{f"{suffix}.gz": kind for suffix, kind in TEXT.items()}, ".parquet": "parquet", ".xlsx": "xlsx",
}  # fmt: skip
"""Every readable file suffix, with its format."""

WRITTEN: tuple[str, ...] = tuple(suffix for suffix, kind in SUFFIXES.items() if kind not in ("txt", "conll", "xlsx"))
"""Every writable file suffix: those of formats with columns."""

READ_ERRORS = (EOFError, zlib.error, OSError)
"""Errors below the parsers: a failing disk, a gz file that is truncated or invalid."""


def _suffix(path: Path) -> str:
    # The longest suffix wins, so that `.csv.gz` is not mistaken for a shorter suffix.
    name = path.name.lower()
    fits = [suffix for suffix in SUFFIXES if name.endswith(suffix)]
    return max(fits, key=len, default="")


def format_of(path: Path) -> str:
    """The format of a file (`csv`, `tsv`, `jsonl`, `txt`, `conll`, `parquet`, `xlsx`) by its suffix."""
    suffix = _suffix(path)
    if not suffix:
        raise UserError(f"{path}: the file format is not known; use one of {', '.join(SUFFIXES)}")
    return SUFFIXES[suffix]


def stem(path: Path) -> str:
    """The name of a file without its known suffix; the whole name if it has none."""
    return path.name[: len(path.name) - len(_suffix(path))]


def open_bytes(path: Path) -> IO[bytes]:
    """Open a text file for reading, decompressing gz."""
    if path.name.lower().endswith(".gz"):
        return cast(IO[bytes], gzip.open(path, "rb"))
    return path.open("rb")


def broken(path: Path, row: int, error: BaseException) -> UserError:
    """The error for a file that becomes unreadable after a row."""
    if isinstance(error, gzip.BadGzipFile) and "Not a gzipped file" not in str(error):
        return UserError(f"{path.name}, row {row} or before: the gz file is damaged (wrong checksum); copy it again")
    if isinstance(error, gzip.BadGzipFile):
        cure = "what follows is not gz; remove it" if row else "compress it again, or drop .gz from its name"
        return UserError(f"{at(path.name, row + 1)}: not valid gz; {cure}")
    if isinstance(error, (EOFError, zlib.error)):
        return UserError(f"{at(path.name, row + 1)}: the gz file is cut off or damaged here; copy it again")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UserError(
        f"{path.name}: cannot be read after row {row} ({reason})" if row else f"{path}: cannot read ({reason})"
    )
