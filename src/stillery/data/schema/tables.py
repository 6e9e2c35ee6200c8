"""Several files as one part: read together, with labels in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.data.readers.formats import stem
from stillery.data.readers.row_numbers import at, at_rows
from stillery.data.schema.labels import Labels, encode, infer, label_name, refuse_constant
from stillery.data.schema.table import Table, Wanted, read_table
from stillery.errors import ErrorList, UserError

__all__ = ["encode_tables", "has_labels", "ids_of_all", "infer_labels", "read_tables"]

Rows = NDArray[np.int64] | None
"""Which rows of all files together, counted from 0, ascending; None is all of them."""


def read_tables(paths: Sequence[Path], wanted: Wanted, *, need_label: bool, labels: bool = True) -> list[Table]:
    """Read the files of one part; they must have the same columns, and no id twice.

    Rows without an id of their own have the name of their file in theirs when there are several files.
    """
    errors = ErrorList()
    tables: list[Table] = []
    for path in paths:
        with errors.catch():
            tables.append(read_table(path, wanted, need_label=need_label, labels=labels))
    errors.raise_any()
    if len(paths) == 1:
        return tables
    _refuse_other_columns(tables)
    ids = ids_of_all(paths, [table.ids for table in tables], tables[0].columns.id)
    return [replace(table, ids=some) for table, some in zip(tables, ids, strict=True)]


def ids_of_all(paths: Sequence[Path], ids: Sequence[tuple[str, ...]], column: str | None) -> list[tuple[str, ...]]:
    """The ids of the rows of several files: unique where a column has them, else with the name of their file."""
    if column is not None:
        _refuse_repeated_ids([path.name for path in paths], ids, column)
        return list(ids)
    names = [stem(path) for path in paths]
    if len(set(names)) < len(names):
        names = [path.name for path in paths]
    return [tuple(f"{name}-{row}" for row in some) for name, some in zip(names, ids, strict=True)]


def has_labels(tables: Sequence[Table], rows: Rows = None) -> bool:
    """Whether any of the rows says something in its label columns."""
    return any(
        any(label_name(item) is not None for item in _items(values[row]))
        for (values, chosen) in ((table.values or [], chosen) for table, chosen in _by_table(tables, rows))
        for row in (range(len(values)) if chosen is None else chosen)
        if values
    )


def infer_labels(tables: Sequence[Table], regression: bool | None, multi: bool | None, rows: Rows = None) -> Labels:
    """The label space that the files show."""
    where = _where(tables)
    if tables[0].multi and regression:
        raise UserError(f"{where}: a text has several labels here, which cannot be scores; leave --regression out")
    values = _values(tables, rows)
    if not tables[0].columns.flags:
        return infer(values, where, regression, tables[0].multi or multi)
    labels = Labels(names=tables[0].columns.flags, multi=True)
    refuse_constant(values, labels, where)
    return labels


def encode_tables(tables: Sequence[Table], labels: Labels, rows: Rows = None, *, learnt: bool = False) -> NDArray[Any]:
    """The encoded labels of every row; of those not asked for 0. What is to be `learnt` may not be constant."""
    errors = ErrorList()
    encoded: list[NDArray[Any]] = []
    for table, chosen in _by_table(tables, rows):
        with errors.catch():
            _refuse_other_kind(table, labels)
            encoded.append(encode(table.label_values(chosen), labels, table.where, chosen))
    errors.raise_any()
    if learnt:
        refuse_constant(_values(tables, rows), labels, _where(tables))
    return np.concatenate(encoded)


def _where(tables: Sequence[Table]) -> str:
    more = f" and {len(tables) - 1} more" if len(tables) > 1 else ""
    return f"{tables[0].where}{more}"


def _by_table(tables: Sequence[Table], rows: Rows) -> list[tuple[Table, list[int] | None]]:
    """Each table with the rows of it that are asked for, counted from its own first."""
    if rows is None:
        return [(table, None) for table in tables]
    ends = np.cumsum([len(table.ids) for table in tables])
    pieces = np.split(rows, np.searchsorted(rows, ends[:-1]))
    return [
        (table, (piece - (end - len(table.ids))).tolist())
        for table, piece, end in zip(tables, pieces, ends, strict=True)
    ]


def _values(tables: Sequence[Table], rows: Rows) -> list[Any]:
    found: list[Any] = []
    for table, chosen in _by_table(tables, rows):
        values = table.label_values(chosen)
        found += values if chosen is None else [values[row] for row in chosen]
    return found


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _refuse_other_kind(table: Table, labels: Labels) -> None:
    """Refuse several labels per text for a model that gives one, and the other way round."""
    if table.multi and not labels.multi:
        gives = "a score" if labels.regression else "one label per text"
        raise UserError(
            f"{table.where}: a text has several labels here, the model gives {gives}; use a multi-label model"
        )
    if labels.multi and not table.multi:
        raise UserError(
            f"{table.where}: the model gives several labels per text (multi-label), the label column one; say "
            "--multi-label to read it as separated labels, or give lists or 0/1 columns"
        )
    if table.separator is None or table.columns.flags:
        return
    clash = [name for name in labels.names if table.separator in name]
    if clash:
        raise UserError(
            f"{table.where}: the model's label {clash[0]!r} holds the separator {table.separator!r}; choose another "
            "with --label-separator, or give lists"
        )


def _refuse_other_columns(tables: Sequence[Table]) -> None:
    first, errors = tables[0], ErrorList()
    for table in tables[1:]:
        if table.columns != first.columns:
            errors.add(f"{table.where}: its columns ({_said(table)}) are not those of {first.where} ({_said(first)})")
        elif table.multi != first.multi:
            listed, other = (table, first) if table.multi else (first, table)
            errors.add(f"{listed.where}: its labels are lists, those of {other.where} are not; write the same in both")
    errors.raise_any()


def _said(table: Table) -> str:
    """The columns that matter of a file, in words."""
    found = table.columns
    uses = {"text": found.text, "second text": found.text_pair, "label": found.label, "id": found.id}
    said = [f"{use} {name!r}" for use, name in uses.items() if name is not None]
    return ", ".join([*said, *(f"label {name!r}" for name in found.flags)])


def _refuse_repeated_ids(files: Sequence[str], ids: Sequence[tuple[str, ...]], column: str) -> None:
    owner: dict[str, int] = {}
    errors = ErrorList()
    for file, some in enumerate(ids):
        again = [row for row, name in enumerate(some, start=1) if name in owner]
        if again:
            name = some[again[0] - 1]
            other = owner[name]
            errors.add(
                f"{at_rows(files[file], again)}: the id {name!r} in column {column!r} is already that of "
                f"{at(files[other], ids[other].index(name) + 1)}; make the ids unique or rename the column"
            )
        owner |= dict.fromkeys(some, file)
    errors.raise_any()
