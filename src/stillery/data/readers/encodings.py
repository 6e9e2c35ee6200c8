"""Encodings of text files: UTF-8 unless another one is given, and a suggestion for a file that is not UTF-8."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from stillery.data.readers.formats import READ_ERRORS, open_bytes
from stillery.errors import UserError

__all__ = ["byte_lines", "check_encoding", "fitting_encoding", "not_text", "open_text", "refuse_utf8"]

CHUNK = 2**20
ONE_BYTE = ("iso8859", "cp125")
# Code points that stand for undecodable bytes (surrogateescape), one each.
ESCAPED_CONTROL = re.compile("[\udc80-\udc9f]")
NOT_IN_CP1252 = re.compile("[\udc81\udc8d\udc8f\udc90\udc9d]")
DECODED = re.compile("[\x80-\ud7ff\ue000-\U0010ffff]")


def check_encoding(encoding: str | None) -> None:
    """Raise UserError for an encoding that is unknown or not a text encoding."""
    if encoding is None:
        return
    try:
        known = codecs.lookup(encoding)
        "".encode(encoding)
    except (LookupError, ValueError):
        raise UserError(
            f"--encoding {encoding}: no such encoding of text; usual ones are utf-8, utf-16, latin-1 and cp1252"
        ) from None
    if known.name in ("idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined"):
        raise UserError(f"--encoding {encoding}: not an encoding of files; usual ones are utf-8, utf-16 and latin-1")


def refuse_utf8(path: Path, encoding: str | None) -> None:
    """Raise UserError for UTF-8 text to be read in a one-byte Western encoding, which would garble it without error."""
    if encoding is None or not codecs.lookup(encoding).name.startswith(ONE_BYTE):
        return
    try:
        with open_bytes(path) as stream:
            start = stream.read(CHUNK)
    except READ_ERRORS:
        # The reader of the rows reports the row at which reading fails.
        return
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return
    if DECODED.search(text):
        raise UserError(f"{path.name}: UTF-8 text, not {encoding}; leave --encoding out, or save all files alike")


def open_text(path: Path, encoding: str | None, newline: str | None = "") -> io.TextIOWrapper:
    """Open a text file; undecodable bytes become lone surrogates, which are detected later at no cost."""
    known = None if encoding is None else codecs.lookup(encoding).name
    usual = "utf-8-sig" if known in (None, "utf-8") else known
    return io.TextIOWrapper(open_bytes(path), encoding=usual, errors="surrogateescape", newline=newline)


@contextmanager
def byte_lines(path: Path, encoding: str | None) -> Iterator[Iterable[bytes]]:
    """Iterate over the lines of a text file as UTF-8, split only at line feeds; undecodable bytes are kept."""
    if encoding is None:
        with open_bytes(path) as stream:
            yield stream
    else:
        with open_text(path, encoding, newline="\n") as lines:
            yield (line.encode("utf-8", "surrogateescape") for line in lines)


def not_text(path: Path, encoding: str | None) -> str:
    """The error message for bytes that are invalid in the encoding, with a remedy."""
    if encoding is not None:
        return f"not {encoding} text; use another --encoding, or save the file as UTF-8"
    fits = fitting_encoding(path)
    return f"not UTF-8 text; save the file as UTF-8{f', or use --encoding {fits}, which fits' if fits else ''}"


def fitting_encoding(path: Path) -> str | None:
    """The one-byte Western encoding that a file may have; None if part of it is UTF-8."""
    try:
        state = path.stat()
    except OSError:
        return None
    return _fitting(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _fitting(path: Path, changed: int, size: int) -> str | None:
    # Called for every bad row of a file: its time and size are part of the cache key, so that it is read once.
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    windows = False
    try:
        with open_bytes(path) as stream:
            while chunk := stream.read(CHUNK):
                text = decoder.decode(chunk)
                if b"\0" in chunk or DECODED.search(text) or NOT_IN_CP1252.search(text):
                    return None
                windows = windows or ESCAPED_CONTROL.search(text) is not None
    except READ_ERRORS:
        return None
    return "cp1252" if windows else "latin-1"
