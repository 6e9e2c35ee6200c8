"""The columns that matter of the files of one split, checked row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from stillery.data.readers.files import read_batches
from stillery.data.readers.formats import stem
from stillery.data.readers.row_numbers import at, at_rows
from stillery.data.schema.columns import Columns, find
from stillery.data.schema.labels import label_name
from stillery.data.schema.roles import Role, Schema
from stillery.data.schema.values import scalar_column
from stillery.errors import ErrorList, UserError

__all__ = ["Table", "read_table", "read_tables", "refuse_empty"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """One file: its ids, its inputs by role, and its answers as their kind keeps them, None where it has none.

    `several` says whether a row may have several answers.
    """

    where: str
    columns: Columns
    ids: tuple[str, ...]
    inputs: Mapping[str, pa.Array]
    answers: Any = None
    several: bool = False


def read_tables(paths: Sequence[Path], schema: Schema, *, need: bool, look: bool = True) -> list[Table]:
    """Read the files of one split; they must have the same columns, and no id twice.

    Rows without an id of their own have the name of their file in theirs when there are several files.
    """
    errors = ErrorList()
    tables: list[Table] = []
    for path in paths:
        with errors.catch():
            tables.append(read_table(path, schema, need=need, look=look))
    errors.raise_any()
    if len(paths) == 1:
        return tables
    _refuse_other_columns(tables, schema)
    ids = _ids_of_all(paths, [table.ids for table in tables], tables[0].columns.id)
    return [replace(table, ids=some) for table, some in zip(tables, ids, strict=True)]


def read_table(path: Path, schema: Schema, *, need: bool, look: bool = True) -> Table:
    """Stream a file and keep its inputs, ids and answers; inputs that are missing or empty are errors.

    Without `look` no answer is looked for; without `need` there may be none.
    """
    where, columns, rows = path.name, None, 0
    kept: dict[str, list[pa.Array]] = {}
    ids: list[str | None] = []
    pieces: list[Any] = []
    answer = schema.answer
    for batch in read_batches(path):
        if columns is None:
            columns = find(batch.schema.names, where, schema, need=need, look=look)
            kept = {role.name: [] for role in schema.inputs if columns.get(role.name) is not None}
        for role in schema.inputs:
            if role.name in kept:
                kept[role.name].append(role.read(batch, columns[role.name], where, rows, role.option))
        if columns.id is not None:
            ids += [label_name(value) for value in scalar_column(batch, columns.id, where, rows, "id")]
        if columns.flags or columns.get(answer.role.name) is not None:
            pieces.append(answer.read(batch, columns, where, rows))
        rows += batch.num_rows
    if columns is None:
        raise UserError(f"{path}: the file has no rows")
    inputs = {name: pa.concat_arrays(chunks) for name, chunks in kept.items()}
    errors = ErrorList()
    for role in schema.inputs:
        with errors.catch():
            if role.name in inputs:
                refuse_empty(role, role.empty(inputs[role.name]).tolist(), columns, where)
    with errors.catch():
        unique = _unique_ids(ids, where, columns.id) if columns.id is not None else tuple(map(str, range(1, rows + 1)))
    errors.raise_any()
    answers, several = answer.joined(pieces, columns, where) if pieces else (None, False)
    return Table(where=where, columns=columns, ids=unique, inputs=inputs, answers=answers, several=several)


def refuse_empty(role: Role, rows: Sequence[int], columns: Columns, where: str) -> None:
    """Refuse rows, counted from 0, whose input is missing or empty."""
    if rows:
        place, name = at_rows(where, [row + 1 for row in rows]), columns[role.name]
        raise UserError(f"{place}: the {role.word} in column {name!r} is empty; fill it in or remove the row")


def _unique_ids(ids: Sequence[str | None], where: str, name: str) -> tuple[str, ...]:
    """The ids of a file's rows; one that is missing or there twice is an error."""
    missing = [row for row, value in enumerate(ids, start=1) if value is None]
    if missing:
        raise UserError(
            f"{at_rows(where, missing)}: no value in the id column {name!r}; fill it in or rename the column"
        )
    if len(set(ids)) < len(ids):
        first: dict[str | None, int] = {}
        again = [row for row, value in enumerate(ids, start=1) if first.setdefault(value, row) != row]
        value = ids[again[0] - 1]
        raise UserError(
            f"{at_rows(where, again)}: the id {value!r} in column {name!r} is already that of row {first[value]}; "
            "make the ids unique or rename the column"
        )
    return tuple(value for value in ids if value is not None)


def _ids_of_all(paths: Sequence[Path], ids: Sequence[tuple[str, ...]], column: str | None) -> list[tuple[str, ...]]:
    """The ids of the rows of several files: unique where a column has them, else with the name of their file."""
    if column is not None:
        _refuse_repeated_ids([path.name for path in paths], ids, column)
        return list(ids)
    names = [stem(path) for path in paths]
    if len(set(names)) < len(names):
        names = [path.name for path in paths]
    return [tuple(f"{name}-{row}" for row in some) for name, some in zip(names, ids, strict=True)]


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


def _refuse_other_columns(tables: Sequence[Table], schema: Schema) -> None:
    first, errors = tables[0], ErrorList()
    for table in tables[1:]:
        if table.columns != first.columns:
            own, others = _in_words(table.columns, schema), _in_words(first.columns, schema)
            errors.add(f"{table.where}: its columns ({own}) are not those of {first.where} ({others})")
        elif table.several != first.several:
            listed, other = (table, first) if table.several else (first, table)
            errors.add(
                f"{listed.where}: its {schema.answer.plural} are lists, those of {other.where} are not; write the same "
                "in both"
            )
    errors.raise_any()


def _in_words(columns: Columns, schema: Schema) -> str:
    """The columns that matter of a file, in words."""
    titles = {role.name: role.title for role in (*schema.inputs, schema.answer.role)}
    said = [f"{titles[role]} {name!r}" for role, name in columns.names.items()]
    said += [f"id {columns.id!r}"] if columns.id is not None else []
    return ", ".join([*said, *(f"{schema.answer.role.title} {name!r}" for name in columns.flags)])
