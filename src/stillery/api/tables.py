"""Conversion of data in memory to Arrow tables, by duck typing, so that no other library is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from stillery.data.readers.row_numbers import at
from stillery.data.schema.split_folders import SPLITS
from stillery.errors import UserError
from stillery.lines import listed

__all__ = ["KNOWN", "as_table", "is_table", "library_of", "splits_of"]

KNOWN = (
    "a path, a DataFrame of pandas or polars, a pyarrow Table, a datasets.Dataset or DatasetDict, a list of dicts, "
    "a list of texts, or a dict of splits such as {'train': ..., 'test': ...}"
)


def library_of(data: Any) -> str:
    """Return the package that defines a value's type."""
    return type(data).__module__.partition(".")[0]


def is_table(data: Any) -> bool:
    """Return whether this is a table, not a column or a single value."""
    if isinstance(data, pa.Table | pa.RecordBatch | Mapping):
        return True
    if isinstance(data, list | tuple):
        return bool(data) and isinstance(data[0], Mapping)
    return hasattr(data, "columns") or hasattr(data, "column_names")


def splits_of(data: Any, name: str) -> dict[str, tuple[str, Any]] | None:
    """Return the tables of a dict of splits by split, each with its given name; None if this is no such dict."""
    if not isinstance(data, Mapping):
        return None
    names = {word: split for split, words in SPLITS.items() for word in words}
    given = {str(word): table for word, table in data.items() if table is not None}
    if not any(word in names for word in given) and not (given and all(map(is_table, given.values()))):
        return None
    known = "train, dev (or validation) and test"
    found: dict[str, tuple[str, Any]] = {}
    for word, table in given.items():
        if word not in names:
            raise UserError(f"{name} has a split {word!r}, and the splits are {known}: leave it out, or rename it")
        if names[word] in found:
            raise UserError(f"{name} has {found[names[word]][0]!r} and {word!r}, which are one split: keep one")
        found[names[word]] = (word, table)
    if not found:
        raise UserError(f"{name} has no split: give {known}")
    return found


def as_table(data: Any, name: str) -> pa.Table:
    """Convert a table in memory to an Arrow table; `name` is its name in errors."""
    table = _columns(data, name)
    if table.num_columns and not table.num_rows:
        raise UserError(f"{name} has no rows")
    return table.replace_schema_metadata(None)


def _columns(data: Any, name: str) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, str | bytes):
        raise UserError(f"{name} is a text: give {KNOWN}")
    if isinstance(data, Mapping):
        return _of_columns({str(column): values for column, values in data.items()}, name)
    if hasattr(data, "column_names") and hasattr(data, "with_format"):
        if not hasattr(data, "__len__"):
            raise UserError(f"{name} is a streamed dataset, which cannot be split: load it without streaming")
        # An Arrow view of exactly the selected rows, in their order.
        return data.with_format("arrow")[:]
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        return _of_pandas(data, name)
    if library_of(data) == "polars" and hasattr(data, "collect"):
        data = data.collect()
    if hasattr(data, "columns") and hasattr(data, "to_arrow"):
        found: pa.Table = data.to_arrow()
        return found
    if hasattr(data, "columns") and hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    for method in ("to_list", "tolist"):
        if hasattr(data, method):
            data = getattr(data, method)()
    if isinstance(data, Sequence):
        return _of_rows(data, name)
    raise UserError(f"{name} is a {type(data).__qualname__}: give {KNOWN}")


def _of_pandas(data: Any, name: str) -> pa.Table:
    names = [str(column) for column in data.columns]
    twice = sorted({column for column in names if names.count(column) > 1})
    if twice:
        raise UserError(f"{name}: more than one column is called {listed(map(repr, twice))}; rename all but one")
    return _of_columns({column: data.iloc[:, place] for place, column in enumerate(names)}, name)


def _of_rows(rows: Sequence[Any], name: str) -> pa.Table:
    """Convert a list of dicts, or of texts, to a table."""
    if not rows:
        raise UserError(f"{name} has no rows")
    if all(isinstance(row, str) for row in rows):
        return pa.table({"text": pa.array(rows, pa.large_string())})
    columns: dict[str, None] = {}
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            what = "None" if row is None else f"a {type(row).__qualname__}"
            raise UserError(f"{at(name, number)}: {what}, where each row is a dict of columns, or each a text")
        columns |= dict.fromkeys(map(str, row))
    return _of_columns({column: [row.get(column) for row in rows] for column in columns}, name)


def _of_columns(columns: Mapping[str, Any], name: str) -> pa.Table:
    arrays = {column: _array(values, column, name) for column, values in columns.items()}
    lengths = {column: len(array) for column, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        said = listed(f"{column!r} {length}" for column, length in lengths.items())
        raise UserError(f"{name}: its columns have different numbers of rows: {said}")
    if not arrays:
        raise UserError(f"{name} has no columns")
    return pa.table(arrays)


def _array(values: Iterable[Any], column: str, name: str) -> Any:
    """Convert a column to an Arrow array; raise UserError for mixed types, with the first row of each."""
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise UserError(f"{name}: column {column!r} is a {type(values).__qualname__}, not a list of values")
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        kinds: dict[str, int] = {}
        for row, value in enumerate(values, start=1):
            if value is not None and value == value:  # not NaN
                kinds.setdefault(type(value).__name__, row)
    said = listed((f"{kind} (row {row})" for kind, row in kinds.items()), 3, between=" and ")
    raise UserError(f"{name}: column {column!r} holds {said} values, which are no column; make them one kind") from None
