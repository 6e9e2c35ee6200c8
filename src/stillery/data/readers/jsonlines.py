"""JSON Lines: one object per line, values with their JSON types."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from stillery.data.readers.formats import READ_ERRORS, broken, open_bytes
from stillery.data.readers.row_numbers import NESTED, at
from stillery.errors import UserError

__all__ = ["read_json_lines"]

BOM = b"\xef\xbb\xbf"
# Deeper than this Parquet cannot be read back, and the recursion of Python and Arrow comes to an end.
DEEPEST = 32


def read_json_lines(path: Path, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Stream a JSON Lines file; a key that a row lacks is null there."""
    row = 0
    chunk: list[dict[str, Any]] = []
    try:
        with open_bytes(path) as lines:
            for number, line in enumerate(lines):
                content = (line.removeprefix(BOM) if number == 0 else line).strip()
                if not content:
                    continue
                row += 1
                chunk.append(_parse(path, row, content))
                if len(chunk) == batch_rows:
                    yield _batch(path, chunk, row)
                    chunk = []
    except READ_ERRORS as error:
        raise broken(path, row, error) from None
    if chunk:
        yield _batch(path, chunk, row)
    elif not row:
        raise UserError(f"{path}: the file is empty; it needs one JSON object per line")


def _parse(path: Path, row: int, line: bytes) -> dict[str, Any]:
    place = at(path.name, row)
    try:
        value = DECODER.decode(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise UserError(f"{place}: not UTF-8 text; save the file as UTF-8") from None
    except _KeyTwice as error:
        raise UserError(f"{place}: the key {error} is there twice; keep one") from None
    except (ValueError, RecursionError) as error:
        if row == 1 and line.startswith(b"["):
            raise UserError(f"{path.name}: one large JSON array; write one JSON object per line instead") from None
        raise UserError(f"{place}: not valid JSON ({_reason(error)}); write one JSON object per line") from None
    if isinstance(value, list) and row == 1:
        raise UserError(f"{path.name}: a JSON array; write one JSON object per line instead")
    if not isinstance(value, dict):
        raise UserError(f'{place}: a JSON {type(value).__name__}, not an object such as {{"text": ..., "label": ...}}')
    if line.count(b"[") + line.count(b"{") > DEEPEST and _depth(value) > DEEPEST:
        raise UserError(f"{place}: nested too deeply, more than {DEEPEST} lists or objects within each other")
    if not value:
        raise UserError(f"{place}: an empty JSON object; fill it in or remove the row")
    return value


def _depth(value: Any) -> int:
    """How many lists and objects are within each other."""
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


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        # The module counts lines and columns of what it was given, which is always one line.
        return f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"


def _batch(path: Path, chunk: Sequence[dict[str, Any]], last: int) -> pa.RecordBatch:
    names = list(dict.fromkeys(name for record in chunk for name in record))
    first = last - len(chunk) + 1
    try:
        columns = [_column(name, [record.get(name) for record in chunk], first) for name in names]
        return pa.RecordBatch.from_arrays(
            [array for array, _ in columns], schema=pa.schema([field for _, field in columns])
        )
    except UnicodeEncodeError:
        row = first + next(i for i, record in enumerate(chunk) if not _is_text(record))
        raise UserError(
            f"{at(path.name, row)}: half of a surrogate pair (such as \\ud83d); write whole characters"
        ) from None


def _column(name: str, values: list[Any], first: int) -> tuple[pa.Array, pa.Field]:
    if all(value is None or isinstance(value, str) for value in values):
        return pa.array(values, type=pa.large_string()), pa.field(name, pa.large_string())
    try:
        array = pa.array(values)
        return array, pa.field(name, array.type)
    except UnicodeEncodeError:
        raise
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # Types differ from row to row: keep what was written, as text, and let the reader of the column judge.
        nested = next((first + i for i, value in enumerate(values) if isinstance(value, (dict, list))), None)
        array = pa.array([_as_text(value) for value in values], type=pa.large_string())
        return array, pa.field(name, array.type, metadata=None if nested is None else {NESTED: str(nested)})


def _as_text(value: Any) -> str | None:
    if value is None or value != value:
        return None
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def _is_text(record: dict[str, Any]) -> bool:
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
