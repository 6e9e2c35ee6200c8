"""JSON Lines: one object per line, values with their JSON types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from stillery.data.formats import READ_ERRORS, broken, open_bytes
from stillery.data.rows import at
from stillery.faults import Fault

__all__ = ["read_json_lines"]

BOM = b"\xef\xbb\xbf"


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
        raise Fault(f"{path}: the file is empty; it needs one JSON object per line")


def _parse(path: Path, row: int, line: bytes) -> dict[str, Any]:
    place = at(path.name, row)
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise Fault(f"{place}: not UTF-8 text; save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        if row == 1 and line.startswith(b"["):
            raise Fault(f"{path.name}: one large JSON array; write one JSON object per line instead") from None
        raise Fault(f"{place}: not valid JSON ({error}); write one JSON object per line") from None
    if isinstance(value, list) and row == 1:
        raise Fault(f"{path.name}: a JSON array; write one JSON object per line instead")
    if not isinstance(value, dict):
        raise Fault(f'{place}: a JSON {type(value).__name__}, not an object such as {{"text": ..., "label": ...}}')
    return value


def _batch(path: Path, chunk: Sequence[dict[str, Any]], last: int) -> pa.RecordBatch:
    names = list(dict.fromkeys(name for record in chunk for name in record))
    try:
        arrays = [_column([record.get(name) for record in chunk]) for name in names]
    except UnicodeEncodeError:
        row = last - len(chunk) + 1 + next(i for i, record in enumerate(chunk) if not _is_text(record))
        raise Fault(
            f"{at(path.name, row)}: half of a surrogate pair (such as \\ud83d); write whole characters"
        ) from None
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _column(values: list[Any]) -> pa.Array:
    if all(value is None or isinstance(value, str) for value in values):
        return pa.array(values, type=pa.large_string())
    try:
        return pa.array(values)
    except UnicodeEncodeError:
        raise
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # Types differ from row to row: keep what was written, as text, and let the reader of the column judge.
        return pa.array([_as_text(value) for value in values], type=pa.large_string())


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
