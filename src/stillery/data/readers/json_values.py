"""Rows from JSON values: one object per row, an array of objects, or an object of columns as pandas writes it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stillery.data.readers.encodings import not_text

__all__ = ["Row", "parsed", "rows_of_array", "rows_of_columns"]

Row = dict[str, Any] | str
"""The values of a row by column name, or an error message for a bad row."""

# Deeper nesting cannot be read back from Parquet, and exceeds the recursion limits of Python and Arrow.
DEEPEST = 32
SPACE = re.compile(r"[ \t\n\r]*")
ESCAPED = re.compile("[\udc80-\udcff]")
ONE_ROW_EACH = ("tokens", "words", "token", "word", "messages", "conversation", "conversations")


def parsed(line: bytes, path: Path, encoding: str | None) -> Row:
    """Parse a row from a piece of JSON."""
    try:
        return _row(DECODER.decode(line.decode("utf-8")))
    except UnicodeDecodeError:
        return not_text(path, encoding)
    except _KeyTwice as error:
        return f"the key {error} appears twice; keep one"
    except (ValueError, RecursionError) as error:
        return f"not valid JSON ({_reason(error)}); write one JSON object per line"


def rows_of_array(path: Path, encoding: str | None, content: bytes) -> Iterator[Row]:
    """Iterate over the rows of an array of objects, up to the first position that is not valid JSON."""
    text = content.decode("utf-8", "surrogateescape")
    place = _next(text, 1)
    if text[place : place + 1] == "]" and _next(text, place + 1) == len(text):
        return
    while True:
        try:
            value, end = DECODER.raw_decode(text, place)
        except _KeyTwice as error:
            yield f"the key {error} appears twice; keep one"
            return
        except (ValueError, RecursionError) as error:
            yield f"not valid JSON ({_reason(error, place)}); correct the array, or write one JSON object per line"
            return
        yield not_text(path, encoding) if ESCAPED.search(text, place, end) else _row(value)
        place = _next(text, end)
        mark = text[place : place + 1]
        place = _next(text, place + 1)
        if mark == "]" and place == len(text):
            return
        if mark != ",":
            yield "not valid JSON (no comma before it, or more behind the array); correct the array"
            return


def rows_of_columns(value: dict[str, Any], *, lists: bool) -> list[Row] | None:
    """The rows of an object of columns, as pandas writes it; None if the object is a row itself.

    A column is an object from row to value or, with `lists`, a list, unless a name such as `tokens` implies that the
    values of a row are lists.

    >>> rows_of_columns({"text": {"0": "a", "1": "b"}, "label": {"0": 1, "1": 2}}, lists=False)
    [{'text': 'a', 'label': 1}, {'text': 'b', 'label': 2}]
    """
    if set(value) == {"columns", "index", "data"} and all(isinstance(part, list) for part in value.values()):
        names, rows = value["columns"], value["data"]
        if all(isinstance(row, list) and len(row) == len(names) for row in rows):
            return [dict(zip(map(str, names), row, strict=True)) for row in rows]
    columns = list(value.values())
    if all(isinstance(column, dict) for column in columns) and len({tuple(column) for column in columns}) == 1:
        columns = [list(column.values()) for column in columns]
    elif not lists or any(name.strip().casefold() in ONE_ROW_EACH for name in value):
        return None
    if not all(isinstance(column, list) for column in columns) or len({len(column) for column in columns}) != 1:
        return None
    return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]


def _row(value: Any) -> Row:
    if not isinstance(value, dict):
        return f'a JSON {type(value).__name__}, not an object such as {{"text": ..., "label": ...}}'
    if not value:
        return "an empty JSON object; fill it in or remove the row"
    if any(isinstance(part, (dict, list)) for part in value.values()) and _depth(value) > DEEPEST:
        return f"nested too deeply, more than {DEEPEST} lists or objects within each other"
    return value


def _next(text: str, place: int) -> int:
    """The first position from `place` on that is not whitespace."""
    found = SPACE.match(text, place)
    return place if found is None else found.end()


def _depth(value: Any) -> int:
    """The nesting depth of lists and objects."""
    depth, level = 0, [value]
    while level:
        level = [value for value in level if isinstance(value, (dict, list))]
        depth += bool(level)
        level = [inner for value in level for inner in (value.values() if isinstance(value, dict) else value)]
    return depth


class _KeyTwice(Exception):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise _KeyTwice(repr(next(key[:40] for key, count in Counter(key for key, _ in pairs).items() if count > 1)))
    return record


DECODER = json.JSONDecoder(object_pairs_hook=_object)


def _reason(error: Exception, before: int = 0) -> str:
    if isinstance(error, json.JSONDecodeError):
        # The json module counts positions in the whole text.
        return f"{error.msg.removesuffix(' at')} at character {error.pos - before + 1}"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"
