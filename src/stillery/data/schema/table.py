"""Relevant columns of the files of one split, validated row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.readers.files import read_batches
from stillery.data.readers.formats import stem
from stillery.data.readers.row_errors import RowErrors
from stillery.data.readers.row_numbers import at, at_rows
from stillery.data.schema.columns import Columns, find
from stillery.data.schema.labels import label_name
from stillery.data.schema.roles import Role, Schema
from stillery.data.schema.values import scalar_column
from stillery.errors import ErrorList, UserError

__all__ = ["SKIP", "Table", "read_table", "read_tables", "refuse_answers", "refuse_empty"]


SKIP = "or leave such rows out with --skip-empty"


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """One file: its ids, its inputs by role, and its answers in the form of their kind, None if it has none.

    `several` is whether a row may have several answers. `kept` are the rows that are not skipped, counted from 0 and
    ascending; None is all rows.
    """

    where: str
    columns: Columns
    ids: tuple[str, ...]
    inputs: Mapping[str, pa.Array]
    answers: Any = None
    several: bool = False
    kept: NDArray[np.int64] | None = None

    @property
    def left_out(self) -> str:
        """A message with the number of skipped rows; empty if there are none."""
        if self.kept is None:
            return ""
        return f"{len(self.ids) - len(self.kept)} of {len(self.ids)} rows of {self.where} are empty and left out"


@runtime_checkable
class RowAnswers(Protocol):
    """A kind of answer that may be missing in single rows of a file."""

    def missing(self, table: Table) -> NDArray[np.int64]:
        """The rows of a file, counted from 0, that have no answer."""

    def refuse_rows(self, table: Table, rows: NDArray[np.int64] | None) -> None:
        """Raise UserError for given rows whose answer is missing or, as far as one file shows, unknown."""


def read_tables(
    paths: Sequence[Path], schema: Schema, *, need: bool, look: bool = True, answered: bool | None = None
) -> list[Table]:
    """Read the files of one split; they must have the same columns and unique ids.

    Without an id column, ids contain the name of the file if there are several files.
    """
    errors = ErrorList()
    tables: list[Table] = []
    for path in paths:
        with errors.catch():
            tables.append(read_table(path, schema, need=need, look=look, answered=answered))
    if errors.lines and (need if answered is None else answered):
        for table in tables:
            with errors.catch():
                refuse_answers(schema, table)
    errors.raise_any()
    if len(paths) == 1:
        return tables
    _refuse_other_columns(tables, schema)
    ids = _ids_of_all(paths, tables, tables[0].columns.id)
    return [replace(table, ids=some) for table, some in zip(tables, ids, strict=True)]


def read_table(path: Path, schema: Schema, *, need: bool, look: bool = True, answered: bool | None = None) -> Table:
    """Stream a file and keep its inputs, ids and answers; rows that cannot be read, and empty ones, are errors.

    Without `look`, answers are ignored; without `need`, there may be none. If any row has an answer, `answered` is
    whether a row without one counts as empty, like one without an input; by default it does if answers are needed.
    """
    answered = need if answered is None else answered
    bad = RowErrors(path.name, gather=True)
    errors = ErrorList()
    try:
        table, ids = _streamed(path, schema, bad, need=need, look=look)
    except UserError as error:
        # The rows after this error are unknown.
        for line in (*bad.lines(), *error.lines):
            errors.add(line)
        errors.raise_any()
        raise
    for line in bad.lines():
        errors.add(line)
    unread = np.array(sorted(bad.positions), dtype=np.int64) - 1
    empty = {role.name: role.empty(table.inputs[role.name]) for role in schema.read if role.name in table.inputs}
    dropped = _dropped(table, schema, empty, answered) if schema.skip_empty else unread
    if len(dropped) == len(table.ids) and not errors.lines:
        raise UserError(f"{path}: every row is empty; is it the right column? ({schema.inputs[0].option})")
    for role in schema.read:
        with errors.catch():
            if role.name in empty:
                refuse_empty(role, np.setdiff1d(empty[role.name], dropped).tolist(), table.columns, table.where)
    with errors.catch():
        unique = table.ids if table.columns.id is None else _unique_ids(ids, table.where, table.columns.id, dropped)
        kept = np.setdiff1d(np.arange(len(table.ids)), dropped)
        table = replace(table, ids=unique, kept=kept if len(dropped) else None)
    if errors.lines and answered and table.answers is not None:
        # With other errors, the answers are validated here, so that all errors are reported together.
        with errors.catch():
            refuse_answers(schema, replace(table, kept=np.setdiff1d(np.arange(len(table.ids)), dropped)))
    errors.raise_any()
    return table


def _streamed(path: Path, schema: Schema, bad: RowErrors, *, need: bool, look: bool) -> tuple[Table, list[str | None]]:
    """Read a file with row numbers as ids, and the ids in its id column."""
    where, columns, rows = path.name, None, 0
    kept: dict[str, list[pa.Array]] = {}
    ids: list[str | None] = []
    pieces: list[Any] = []
    answer = schema.answer
    for read in read_batches(path, encoding=schema.encoding, errors=bad):
        batch = schema.prepared(read, where, rows, need and look)
        if columns is None:
            columns = find(batch.schema.names, where, schema, need=need, look=look)
            kept = {role.name: [] for role in schema.read if columns.get(role.name) is not None}
        for role in schema.read:
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
    answers, several = answer.joined(pieces, columns, where) if pieces else (None, False)
    numbers = tuple(map(str, range(1, rows + 1)))
    return Table(where=where, columns=columns, ids=numbers, inputs=inputs, answers=answers, several=several), ids


def _dropped(table: Table, schema: Schema, empty: Mapping[str, NDArray[np.int64]], answered: bool) -> NDArray[np.int64]:
    """The empty rows: without an input or, with `answered` and if others have one, without an answer."""
    found = reduce(np.union1d, empty.values(), np.array([], dtype=np.int64))
    if answered and table.answers is not None and isinstance(schema.answer, RowAnswers):
        missing = schema.answer.missing(table)
        found = np.union1d(found, missing) if len(missing) < len(table.ids) else found
    return found.astype(np.int64)


def refuse_answers(schema: Schema, table: Table) -> None:
    """Raise UserError for kept rows of a file whose answer is missing or, as far as one file shows, unknown."""
    if isinstance(schema.answer, RowAnswers):
        schema.answer.refuse_rows(table, table.kept)


def refuse_empty(role: Role, rows: Sequence[int], columns: Columns, where: str) -> None:
    """Raise UserError for rows, counted from 0, whose input is missing or empty."""
    if rows:
        place, name = at_rows(where, [row + 1 for row in rows]), columns[role.name]
        raise UserError(f"{place}: the {role.word} in column {name!r} is empty; fill it in or remove the row, {SKIP}")


def _unique_ids(ids: Sequence[str | None], where: str, name: str, dropped: NDArray[np.int64]) -> tuple[str, ...]:
    """The ids of a file's rows; missing or duplicate ids are errors, except in skipped rows."""
    outside = set(dropped.tolist())
    missing = [row + 1 for row, value in enumerate(ids) if value is None and row not in outside]
    if missing:
        raise UserError(
            f"{at_rows(where, missing)}: no value in the id column {name!r}; fill it in or rename the column"
        )
    first: dict[str | None, int] = {}
    again = [
        row + 1 for row, value in enumerate(ids) if row not in outside and first.setdefault(value, row + 1) != row + 1
    ]
    if again:
        value = ids[again[0] - 1]
        raise UserError(
            f"{at_rows(where, again)}: the id {value!r} in column {name!r} is already that of row {first[value]}; "
            "make the ids unique or rename the column"
        )
    return tuple("" if value is None else value for value in ids)


def _ids_of_all(paths: Sequence[Path], tables: Sequence[Table], column: str | None) -> list[tuple[str, ...]]:
    """The ids of the rows of several files: those of the id column, else prefixed with the file name."""
    if column is not None:
        _refuse_repeated_ids(tables, column)
        return [table.ids for table in tables]
    names = [stem(path) for path in paths]
    if len(set(names)) < len(names):
        names = [path.name for path in paths]
    return [tuple(f"{name}-{row}" for row in table.ids) for name, table in zip(names, tables, strict=True)]


def _refuse_repeated_ids(tables: Sequence[Table], column: str) -> None:
    owner: dict[str, int] = {}
    errors = ErrorList()
    for file, table in enumerate(tables):
        rows = range(len(table.ids)) if table.kept is None else table.kept.tolist()
        again = [row + 1 for row in rows if table.ids[row] in owner]
        if again:
            name = table.ids[again[0] - 1]
            other = tables[owner[name]]
            errors.add(
                f"{at_rows(table.where, again)}: the id {name!r} in column {column!r} is already that of "
                f"{at(other.where, other.ids.index(name) + 1)}; make the ids unique or rename the column"
            )
        owner |= {table.ids[row]: file for row in rows}
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
    """A description of the relevant columns of a file."""
    titles = {role.name: role.title for role in (*schema.read, schema.answer.role)}
    said = [f"{titles[role]} {name!r}" for role, name in columns.names.items()]
    said += [f"id {columns.id!r}"] if columns.id is not None else []
    return ", ".join([*said, *(f"{schema.answer.role.title} {name!r}" for name in columns.flags)])
