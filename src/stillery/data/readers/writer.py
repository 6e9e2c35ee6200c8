"""Atomic writing of rows in any supported format."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from stillery.atomic import atomic_file
from stillery.data.readers.formats import WRITTEN, format_of
from stillery.errors import UserError

__all__ = ["Writer", "write_rows", "written_format"]

Values: TypeAlias = list[Any] | pa.Array
"""The values of a column."""


@dataclass(frozen=True, kw_only=True)
class Writer:
    """An open file to which rows are written, column by column."""

    path: Path
    columns: tuple[str, ...]
    put: Callable[[dict[str, Values]], None]

    def write(self, rows: Mapping[str, Sequence[Any] | pa.Array]) -> None:
        """Append rows given as one sequence of values, or one Arrow array, per column."""
        if set(rows) != set(self.columns):
            raise ValueError(f"rows have the columns {sorted(rows)}, the file has {sorted(self.columns)}")
        values = {name: _plain(rows[name]) for name in self.columns}
        if len({len(column) for column in values.values()}) > 1:
            raise ValueError("columns of different lengths")
        with _writable(self.path):
            self.put(values)


@contextmanager
def write_rows(path: Path, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> Iterator[Writer]:
    """Write a file in the format of its suffix; it appears complete when the block ends, and not at all if it fails.

    Parquet columns have the given `types`, else the type of their first rows.
    """
    path = Path(path)
    kind = written_format(path)
    names = tuple(columns)
    with ExitStack() as stack:
        with _writable(path):
            part = stack.enter_context(atomic_file(path))
            put = _parquet(stack, part, names, types or {}) if kind == "parquet" else _text(stack, part, names, kind)
        yield Writer(path=path, columns=names, put=put)
        with _writable(path):
            stack.close()


def written_format(path: Path) -> str:
    """The format a file will be written in; raise UserError for a path that cannot be written to."""
    kind = format_of(path)
    if kind == "txt":
        raise UserError(f"{path}: a text file has no columns to write; use one of {', '.join(WRITTEN)}")
    if kind == "xlsx":
        raise UserError(f"{path}: workbooks are read, not written; use one of {', '.join(WRITTEN)}")
    with _writable(path):
        if path.is_dir():
            raise UserError(f"{path}: a folder where a file is to be written; give a file name in it")
        if not path.parent.is_dir():
            raise UserError(f"{path}: the folder {path.parent} does not exist; create it first")
    return kind


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None
    except pa.ArrowException as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"{path}: cannot be written ({reason}); choose another format") from None


def _text(stack: ExitStack, path: Path, names: Sequence[str], kind: str) -> Callable[[dict[str, Values]], None]:
    opener: Callable[..., Any] = gzip.open if path.name.lower().endswith(".gz") else open
    raw = stack.enter_context(opener(path, "wb"))
    stream = stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
    if kind == "jsonl":

        def put_json(rows: dict[str, Values]) -> None:
            for values in zip(*map(_python, rows.values()), strict=True):
                stream.write(_json(dict(zip(names, values, strict=True))) + "\n")

        return put_json
    writer = csv.writer(stream, delimiter="," if kind == "csv" else "\t", lineterminator="\n")
    writer.writerow(names)

    def put(rows: dict[str, Values]) -> None:
        for values in zip(*map(_python, rows.values()), strict=True):
            writer.writerow(map(_cell, values))

    return put


def _parquet(
    stack: ExitStack, path: Path, names: Sequence[str], types: Mapping[str, pa.DataType]
) -> Callable[[dict[str, Values]], None]:
    writers: list[pq.ParquetWriter] = []

    def write(table: pa.Table) -> None:
        if not writers:
            writers.append(stack.enter_context(pq.ParquetWriter(path, table.schema)))
        writers[0].write_table(table.cast(writers[0].schema))

    def finish() -> None:
        # A file without rows still has its columns.
        if not writers:
            write(pa.table({name: pa.array([], type=pa.string()) for name in names}))

    stack.callback(finish)
    return lambda rows: write(pa.table({name: _arrow(values, types.get(name)) for name, values in rows.items()}))


def _arrow(values: Values, kind: pa.DataType | None) -> pa.Array:
    if not isinstance(values, pa.Array):
        return pa.array(values, type=kind)
    return values if kind is None else values.cast(kind)


def _plain(values: Sequence[Any] | pa.Array) -> Values:
    """Convert numpy values to Python values."""
    if isinstance(values, pa.Array):
        return values
    return [value.tolist() if hasattr(value, "tolist") else value for value in values]


def _python(values: Values) -> list[Any]:
    """Convert values for text formats; times become text, because Python has no nanoseconds and no year 10000."""
    if not isinstance(values, pa.Array):
        return values
    if pa.types.is_temporal(values.type):
        texts = pa.types.is_date(values.type) or pa.types.is_time(values.type) or pa.types.is_timestamp(values.type)
        values = values.cast(pa.string() if texts else pa.int64())
    listed: list[Any] = values.to_pylist()
    return listed


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_text_of)


def _cell(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        return _json(value)
    return _text_of(value) if isinstance(value, bytes) else value


def _text_of(value: Any) -> str:
    """Convert a value without a JSON type to text: bytes are decoded, decimals and dates printed."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
