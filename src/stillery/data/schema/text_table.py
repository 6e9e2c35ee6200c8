"""The source and target columns of files that hold texts to be written from texts, checked row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stillery.data.readers.delimited import other_separator
from stillery.data.readers.files import read_batches
from stillery.data.readers.row_numbers import at, at_rows
from stillery.data.schema.columns import ID
from stillery.data.schema.labels import label_name
from stillery.data.schema.table import empty_rows, joined, plain_column, scalar_column, text_column, unique_ids
from stillery.data.schema.tables import ids_of_all
from stillery.errors import ErrorList, UserError, nearest

__all__ = ["TEXTS", "TextColumns", "TextTable", "find_text_columns", "has_targets", "read_text_tables", "refuse_empty"]

TEXTS = pa.list_(pa.large_string())
"""The Arrow type of several texts per example."""

SOURCE = (
    *("source", "src", "input", "inputs", "source_text", "text", "document", "article", "dialogue", "passage"),
    *("question", "prompt", "instruction", "query", "sentence", "en"),
)
TARGET = (
    *("target", "targets", "tgt", "output", "outputs", "target_text", "references", "reference", "summary"),
    *("highlights", "answer", "answers", "response", "completion", "translation"),
)
LANGUAGES = ("cs", "de", "en", "es", "fi", "fr", "it", "ja", "nl", "pl", "pt", "ro", "ru", "tr", "zh")
"""What columns are called that hold the same text in several languages."""

LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
STRINGS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)


@dataclass(frozen=True, kw_only=True)
class TextColumns:
    """The names of the columns that matter, as the file spells them."""

    source: str
    target: str | None
    id: str | None


@dataclass(frozen=True, kw_only=True, eq=False)
class TextTable:
    """One file: its sources, and of each row the list of its targets, which is one where `several` is False."""

    where: str
    columns: TextColumns
    ids: tuple[str, ...]
    sources: pa.Array
    targets: pa.Array | None
    several: bool

    @cached_property
    def without_target(self) -> NDArray[np.int64]:
        """The rows, counted from 0, that have no target, or an empty one among theirs."""
        if self.targets is None:
            return np.arange(len(self.ids), dtype=np.int64)
        sizes = pc.fill_null(pc.list_value_length(self.targets), 0).to_numpy(zero_copy_only=False)
        owners = pc.list_parent_indices(self.targets).to_numpy(zero_copy_only=False)
        blank = np.array(empty_rows([self.targets.flatten()]), dtype=np.int64) - 1
        return np.union1d(np.flatnonzero(sizes == 0), owners[blank]).astype(np.int64)


def find_text_columns(
    names: Sequence[str], where: str, source: str | None = None, target: str | None = None, need_target: bool = True
) -> TextColumns:
    """Find the columns by their usual names, or take the ones asked for.

    Where none of the usual names of a target is there, it is the one other language beside a source in `en`.
    """
    errors = ErrorList()
    asked: dict[str, str | None] = {"--source": None, "--target": None}
    for option, wanted in (("--source", source), ("--target", target if need_target else None)):
        with errors.catch():
            asked[option] = _asked(names, where, option, wanted)
    errors.raise_any()
    found_target = asked["--target"] or (_column(names, target) if target is not None else None)
    found_source = asked["--source"] or _first(names, SOURCE, beside=found_target)
    if found_source is None:
        raise UserError(f"{where}: no source column; {_choose(names, '--source')}")
    if found_source == found_target:
        raise UserError(f"{where}: --source and --target both name the column {found_source!r}; give two columns")
    if found_target is None and target is None:
        found_target = _first(names, TARGET, beside=found_source) or _other_language(names, where, found_source)
    if found_target is None and need_target:
        raise UserError(f"{where}: no target column; {_choose(names, '--target')}")
    return TextColumns(source=found_source, target=found_target, id=_first(names, ID))


def read_text_tables(
    paths: Sequence[Path],
    *,
    source: str | None = None,
    target: str | None = None,
    need_target: bool = True,
    targets: bool = True,
) -> list[TextTable]:
    """Read the files of one part; they must have the same columns, and no id twice.

    Sources that are missing or empty are errors; of targets that is for `refuse_empty` to say. Without `targets` no
    target column is looked for.
    """
    errors = ErrorList()
    tables: list[TextTable] = []
    for path in paths:
        with errors.catch():
            tables.append(_read(path, source, target, need_target, targets))
    errors.raise_any()
    if len(paths) == 1:
        return tables
    first = tables[0]
    for table in tables[1:]:
        if table.columns != first.columns:
            errors.add(f"{table.where}: its columns ({_said(table)}) are not those of {first.where} ({_said(first)})")
        elif table.several != first.several:
            listed, other = (table, first) if table.several else (first, table)
            errors.add(f"{listed.where}: its targets are lists, those of {other.where} are not; write the same in both")
    errors.raise_any()
    ids = ids_of_all(paths, [table.ids for table in tables], first.columns.id)
    return [replace(table, ids=some) for table, some in zip(tables, ids, strict=True)]


def has_targets(tables: Sequence[TextTable], rows: NDArray[np.int64] | None = None) -> bool:
    """Whether any row has targets, none of them empty; `rows` are counted over all tables from 0."""
    empty = _without_target(tables)
    if rows is None:
        return len(empty) < sum(len(table.ids) for table in tables)
    return len(np.setdiff1d(rows, empty)) > 0


def refuse_empty(tables: Sequence[TextTable], rows: NDArray[np.int64] | None = None) -> None:
    """Refuse rows without a target, or with an empty one; `rows` are those that count, over all tables from 0."""
    errors = ErrorList()
    before = 0
    for table in tables:
        empty = table.without_target
        if rows is not None:
            empty = np.intersect1d(empty + before, rows) - before
        if len(empty):
            place = at_rows(table.where, (empty + 1).tolist())
            errors.add(f"{place}: the target in column {table.columns.target!r} is empty; fill it in or remove the row")
        before += len(table.ids)
    errors.raise_any()


def _read(path: Path, source: str | None, target: str | None, need_target: bool, targets: bool) -> TextTable:
    where, columns, rows = path.name, None, 0
    sources: list[pa.Array] = []
    found: list[tuple[pa.Array, bool]] = []
    ids: list[str | None] = []
    for batch in read_batches(path):
        if columns is None:
            columns = find_text_columns(
                batch.schema.names, where, source, target if targets else None, need_target and targets
            )
            columns = columns if targets else replace(columns, target=None)
        sources.append(text_column(batch, columns.source, where, rows, "--source"))
        if columns.target is not None:
            found.append(_targets(batch, columns.target, where, rows))
        if columns.id is not None:
            ids += [label_name(value) for value in scalar_column(batch, columns.id, where, rows, "id")]
        rows += batch.num_rows
    if columns is None:
        raise UserError(f"{path}: the file has no rows")
    errors = ErrorList()
    empty = empty_rows(sources)
    if empty:
        errors.add(
            f"{at_rows(where, empty)}: the source in column {columns.source!r} is empty; fill it in or remove the row"
        )
    with errors.catch():
        unique = unique_ids(ids, where, columns.id) if columns.id is not None else tuple(map(str, range(1, rows + 1)))
    errors.raise_any()
    return TextTable(
        where=where,
        columns=columns,
        ids=unique,
        sources=joined(sources),
        targets=pa.concat_arrays([texts for texts, _ in found]) if columns.target is not None else None,
        several=any(several for _, several in found),
    )


def _targets(batch: pa.RecordBatch, name: str, where: str, before: int) -> tuple[pa.Array, bool]:
    """The targets of each row as a list, and whether the column holds lists."""
    column = plain_column(batch, name)
    if any(test(column.type) for test in LISTS):
        if not any(test(column.type.value_type) for test in STRINGS):
            row = before + 1 + int(pc.index(pc.is_valid(column), True).as_py())
            raise UserError(
                f"{at(where, row)}: column {name!r} holds {column.type}, not lists of texts; choose --target"
            )
        return column.cast(TEXTS), True
    texts = text_column(batch, name, where, before, "--target")
    offsets = pa.array(np.arange(len(texts) + 1, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, texts), False


def _without_target(tables: Sequence[TextTable]) -> NDArray[np.int64]:
    before = np.cumsum([0, *(len(table.ids) for table in tables[:-1])])
    return np.concatenate([start + table.without_target for start, table in zip(before, tables, strict=True)])


def _column(names: Sequence[str], wanted: str) -> str | None:
    """The column of that name, its exact spelling before any other case."""
    if wanted in names:
        return wanted
    return next((name for name in names if name.strip().casefold() == wanted.strip().casefold()), None)


def _first(names: Sequence[str], candidates: Sequence[str], beside: str | None = None) -> str | None:
    found = (_column(names, candidate) for candidate in candidates)
    return next((name for name in found if name is not None and name != beside), None)


def _asked(names: Sequence[str], where: str, option: str, wanted: str | None) -> str | None:
    if wanted is None:
        return None
    found = _column(names, wanted)
    if found is None:
        raise UserError(f"{where}: no column {wanted!r} ({option}); {other_separator(names) or nearest(wanted, names)}")
    return found


def _other_language(names: Sequence[str], where: str, source: str) -> str | None:
    if source.strip().casefold() not in LANGUAGES:
        return None
    others = [name for name in names if name != source and name.strip().casefold() in LANGUAGES]
    if len(others) > 1:
        raise UserError(f"{where}: {source!r} could be translated to {', '.join(others)}; name one with --target")
    return others[0] if others else None


def _choose(names: Sequence[str], option: str) -> str:
    shown = ", ".join(repr(name) for name in names)
    return other_separator(names) or f"the columns are {shown}; name one with {option}"


def _said(table: TextTable) -> str:
    found = table.columns
    uses = {"source": found.source, "target": found.target, "id": found.id}
    return ", ".join(f"{use} {name!r}" for use, name in uses.items() if name is not None)
