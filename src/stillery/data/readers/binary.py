"""Files that are no text although their names say so, told by how they start."""

from __future__ import annotations

from pathlib import Path

from stillery.data.readers.formats import READ_ERRORS, open_bytes
from stillery.data.readers.row_numbers import at
from stillery.errors import UserError

__all__ = ["refuse_binary"]

STARTS = {
    b"\xff\xfe": "UTF-16 text, not UTF-8; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text, not UTF-8; save it as UTF-8",
    b"\x1f\x8b": "gz, not text; add .gz to its name",
    b"PAR1\x15": "Parquet, not text; call it .parquet",
    b"PK\x03\x04": "a zip file, such as a workbook of .xlsx, not text; export it as CSV",
    b"\x89PNG": "a picture, not text",
}


def refuse_binary(path: Path, first: int) -> None:
    """Refuse a file that is something else than UTF-8 text from its first row (0: the header) on."""
    try:
        with open_bytes(path) as stream:
            line = stream.readline(4096)
    except READ_ERRORS:
        # Whoever reads the rows says in which of them the bytes stop.
        return
    if line.startswith(b"\x1f\x8b") and path.name.lower().endswith(".gz"):
        raise UserError(f"{at(path.name, first)}: gz within gz; unpack it once")
    for start, said in STARTS.items():
        if line.startswith(start):
            raise UserError(f"{at(path.name, first)}: {said}")
    if b"\0" in line:
        raise UserError(f"{at(path.name, first)}: not UTF-8 text but binary or UTF-16; save it as UTF-8 text")
