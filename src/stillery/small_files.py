"""Reading of small files (settings, configurations, records) with limits on size, nesting and numbers.

Such a file may come from somebody else. One that is no regular file, too large or nested too deeply is an error like
any other damaged file, instead of a wait, gigabytes of memory or a RecursionError.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

__all__ = ["LARGEST_JSON", "LARGEST_TOML", "check_regular", "parsed_toml", "read_json", "read_text", "read_toml"]

LARGEST_JSON = 2**25
"""Bytes of a configuration or record; 100,000 labels in a config.json or metrics.json take less."""

LARGEST_TOML = 2**20
"""Bytes of a run file or plan; the largest of a study's plans have some thousands."""

_DEEPEST = 64
_MOST_KEYS = 10_000
_LARGEST_INTEGER = 2**63
_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def check_regular(path: Path) -> None:
    """Raise OSError for a pipe, socket or device, or a link to one: opening or reading it may never end."""
    _check(path.stat().st_mode)


def _check(mode: int) -> None:
    kind = _KINDS.get(stat.S_IFMT(mode))
    if kind is not None:
        raise OSError(None, f"{kind}, not a file")


def read_text(path: Path, most: int = LARGEST_JSON) -> str:
    """Return a file's UTF-8 text; raise OSError if it is no regular file, ValueError for more than `most` bytes."""
    check_regular(path)
    with path.open("rb") as file:
        # The name may stand for something else by now.
        _check(os.fstat(file.fileno()).st_mode)
        read = file.read(most + 1)
    if len(read) > most:
        raise ValueError(f"larger than {most / 2**20:g} MB")
    return read.decode("utf-8")


def read_json(path: Path, most: int = LARGEST_JSON) -> Any:
    """Return the value of a JSON file; raise OSError or ValueError for a file that cannot be read."""
    text = read_text(path, most)
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _check_depth(value)
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """Return the values of a TOML file; raise OSError or ValueError for a file that cannot be read."""
    return parsed_toml(read_text(path, LARGEST_TOML))


def parsed_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise ValueError for what is no TOML, nested too deeply, or holds too many keys or a huge integer."""
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:
        # Python refuses integers of thousands of digits, and dates such as 2026-13-40.
        raise ValueError("a number of too many digits" if "digits" in str(error) else str(error)) from None
    _check_depth(values, most=_MOST_KEYS)
    return values


def _check_depth(value: Any, most: int | None = None) -> None:
    """Raise ValueError for too many lists and tables within each other or, with `most`, too many values in all."""
    level, count = [value], 0
    for _ in range(_DEEPEST):
        if most is not None and any(
            type(one) is int and not -_LARGEST_INTEGER <= one < _LARGEST_INTEGER for one in level
        ):
            raise ValueError("an integer of more than 64 bits")
        count += len(level)
        if most is not None and count > most:
            raise ValueError(f"more than {most:,} values")
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return
    raise ValueError(f"nested too deeply, more than {_DEEPEST} lists or tables within each other")


def _inside(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
