"""Known file formats by suffix, and opening of plain and gzipped files."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import IO, Any, cast

from stillery.data.readers.row_numbers import at
from stillery.errors import UserError
from stillery.small_files import check_regular

__all__ = ["READ_ERRORS", "SUFFIXES", "WRITTEN", "broken", "format_of", "open_bytes", "refuse_bomb", "stem"]

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

_LONGEST_LINE, _LONGEST_JSON = 2**25, 2**27
"""Bytes of a line; a whole `.json` file may be one line."""

_MOST_UNPACKED, _LARGEST_RATIO = 2**26, 200
"""Bytes from which on a gz file is refused that unpacks to more than this multiple of what has been read of it."""

_CHUNK = 2**18


class _TooLarge(OSError):
    """A line or a gz file that would take far more memory or time than a file of examples."""


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
    """Open a text file for reading, decompressing gz; endless lines and gz bombs are an error when they are reached."""
    check_regular(path)
    packed = path.open("rb")
    return cast(IO[bytes], io.BufferedReader(_Bounded(path, packed), _CHUNK))


def refuse_bomb(path: Path) -> None:
    """Raise UserError for a gz file that begins as a bomb, before any parser sees its lines."""
    try:
        with path.open("rb") as packed, _Bounded(path, packed) as plain:
            # What has been read of a usual file soon rules out the ratio.
            while packed.tell() * _LARGEST_RATIO <= 2 * _MOST_UNPACKED and plain.readinto(bytearray(_CHUNK)):
                pass
    except _TooLarge as error:
        raise broken(path, 0, error) from None
    except READ_ERRORS:
        # The reader of the rows reports the row at which reading fails.
        return


class _Bounded(io.RawIOBase):
    """The bytes of a file, of a gz file unpacked, up to a line or a ratio that no file of examples has."""

    def __init__(self, path: Path, packed: IO[bytes]) -> None:
        self._packed = packed
        self._plain: Any = gzip.GzipFile(fileobj=packed) if path.name.lower().endswith(".gz") else packed
        self._longest = _LONGEST_JSON if ".json" in path.suffixes else _LONGEST_LINE
        self._line, self._total = 0, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into a buffer; return their number."""
        # At most one read below: what was unpacked before a damaged place is still delivered.
        chunk: bytes = self._plain.read1(len(buffer))
        buffer[: len(chunk)] = chunk
        self._total += len(chunk)
        last = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
        self._line = self._line + len(chunk) if last < 0 else len(chunk) - last - 1
        if self._line > self._longest:
            raise _TooLarge(f"a line of more than {self._longest // 2**20} MB; write one example per line")
        ratio = self._total > _MOST_UNPACKED and self._total / max(self._packed.tell(), 1)
        if self._plain is not self._packed and ratio > _LARGEST_RATIO:
            raise _TooLarge(
                f"the gz file unpacks to more than {_LARGEST_RATIO} times its size; if that is right, unpack it first"
            )
        return len(chunk)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._plain.close()
            self._packed.close()
        super().close()


def broken(path: Path, row: int, error: BaseException) -> UserError:
    """The error for a file that becomes unreadable after a row."""
    if isinstance(error, _TooLarge):
        return UserError(f"{at(path.name, row + 1)}: {error}")
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
