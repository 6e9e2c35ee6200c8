"""Writing rows in any supported format: whole files or nothing."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stillery.atomic import atomic_file
from stillery.data.formats import format_of
from stillery.faults import Fault

__all__ = ["Writer", "write_rows"]


@dataclass(frozen=True, kw_only=True)
class Writer:
    """An open file that takes rows, column by column."""

    path: Path
    columns: tuple[str, ...]
    put: Callable[[dict[str, list[Any]]], None]

    def write(self, rows: Mapping[str, Sequence[Any]]) -> None:
        """Append rows given as one sequence of values per column."""
        if set(rows) != set(self.columns):
            raise ValueError(f"rows have the columns {sorted(rows)}, the file has {sorted(self.columns)}")
        values = {name: [_plain(value) for value in rows[name]] for name in self.columns}
        if len({len(column) for column in values.values()}) > 1:
            raise ValueError("columns of different lengths")
        with _writable(self.path):
            self.put(values)


@contextmanager
def write_rows(path: Path, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> Iterator[Writer]:
    """Write a file in the format of its suffix; it appears whole when the block ends and not at all when it fails.

    Parquet columns have the given `types`, others that of their first rows.
    """
    path = Path(path)
    kind = format_of(path)
    if path.is_dir():
        raise Fault(f"{path}: a folder where a file is to be written; give a file name in it")
    if not path.parent.is_dir():
        raise Fault(f"{path}: the folder {path.parent} does not exist; create it first")
    names = tuple(columns)
    with ExitStack() as stack:
        with _writable(path):
            part = stack.enter_context(atomic_file(path))
            put = _parquet(stack, part, names, types or {}) if kind == "parquet" else _text(stack, part, names, kind)
        yield Writer(path=path, columns=names, put=put)
        with _writable(path):
            stack.close()


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Fault(f"{path}: cannot be written ({error.strerror or error})") from None


def _text(stack: ExitStack, path: Path, names: Sequence[str], kind: str) -> Callable[[dict[str, list[Any]]], None]:
    opener: Callable[..., Any] = gzip.open if path.name.lower().endswith(".gz") else open
    raw = stack.enter_context(opener(path, "wb"))
    stream = stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
    if kind == "jsonl":

        def put_json(rows: dict[str, list[Any]]) -> None:
            for values in zip(*rows.values(), strict=True):
                stream.write(json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False) + "\n")

        return put_json
    writer = csv.writer(stream, delimiter="," if kind == "csv" else "\t", lineterminator="\n")
    writer.writerow(names)

    def put(rows: dict[str, list[Any]]) -> None:
        for values in zip(*rows.values(), strict=True):
            writer.writerow([json.dumps(v, ensure_ascii=False) if isinstance(v, (list, dict)) else v for v in values])

    return put


def _parquet(
    stack: ExitStack, path: Path, names: Sequence[str], types: Mapping[str, pa.DataType]
) -> Callable[[dict[str, list[Any]]], None]:
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
    return lambda rows: write(pa.table({name: pa.array(values, type=types.get(name)) for name, values in rows.items()}))


def _plain(value: Any) -> Any:
    """A numpy value as the Python value it stands for."""
    return value.tolist() if hasattr(value, "tolist") else value
