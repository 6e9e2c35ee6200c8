"""Detection of binary files with the suffix of a text file, by their first bytes."""

from __future__ import annotations

from pathlib import Path

from stillery.data.readers.formats import READ_ERRORS, open_bytes
from stillery.data.readers.row_numbers import at
from stillery.errors import UserError

__all__ = ["refuse_binary"]

WIDE = {
    b"\xff\xfe\0\0": "UTF-32 text, not UTF-8; save it as UTF-8, or use --encoding utf-32",
    b"\xff\xfe": "UTF-16 text, not UTF-8; save it as UTF-8, or use --encoding utf-16",
    b"\xfe\xff": "UTF-16 text, not UTF-8; save it as UTF-8, or use --encoding utf-16",
}
STARTS = {
    b"\x1f\x8b": "gz, not text; add .gz to its name",
    b"PAR1\x15": "Parquet, not text; call it .parquet",
    b"PK\x03\x04": "a zip file, such as a workbook, not text; name a workbook .xlsx, or export it as CSV",
    b"\x89PNG": "a picture, not text",
}


def refuse_binary(path: Path, first: int, encoding: str | None = None) -> None:
    """Raise UserError if a file is not text in UTF-8 or the given encoding; `first` is its first row, 0 header."""
    try:
        with open_bytes(path) as stream:
            line = stream.readline(4096)
    except READ_ERRORS:
        # The reader of the rows reports the row at which reading fails.
        return
    if line.startswith(b"\x1f\x8b") and path.name.lower().endswith(".gz"):
        raise UserError(f"{at(path.name, first)}: gz within gz; unpack it once")
    for start, said in (STARTS if encoding is not None else WIDE | STARTS).items():
        if line.startswith(start):
            raise UserError(f"{at(path.name, first)}: {said}")
    if b"\0" in line and encoding is None:
        raise UserError(
            f"{at(path.name, first)}: not UTF-8 text but binary or UTF-16; save it as UTF-8 text{_without_mark(line)}"
        )


def _without_mark(line: bytes) -> str:
    """A hint at the encoding if every second byte is 0, as in UTF-16 without a byte order mark."""
    odd, even = line[1::2], line[::2]
    for name, zeros, others in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        # The line may end within a character.
        if zeros.count(0) > 0.9 * len(zeros) and others[:-1].count(0) == 0:
            return f", or use --encoding {name}"
    return ""
