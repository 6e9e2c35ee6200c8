"""Answers that are texts: targets to be generated from sources, with one or several references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stillery.data.readers.row_numbers import at_rows
from stillery.data.schema.answer import Rows, Selected, rows_by_table
from stillery.data.schema.chat import as_pairs
from stillery.data.schema.columns import Columns
from stillery.data.schema.examples import Examples
from stillery.data.schema.roles import SOURCE, Role, Schema
from stillery.data.schema.table import SKIP, Table
from stillery.data.schema.values import empty_lists, holds_lists, list_column, plain_column, text_column
from stillery.errors import ErrorList, UserError

__all__ = ["TARGET", "TextAnswers", "expanded", "generation", "references_of"]

TARGET = Role(
    name="target",
    option="--target",
    usual=(
        *("target", "targets", "tgt", "output", "outputs", "target_text", "references", "reference", "summary"),
        *("highlights", "answer", "answers", "response", "completion", "translation"),
    ),
    word="target",
    languages=("cs", "de", "en", "es", "fi", "fr", "it", "ja", "nl", "pl", "pt", "ro", "ru", "tr", "zh"),
)


def generation(
    source: str | None = None, target: str | None = None, *, encoding: str | None = None, skip_empty: bool = False
) -> Schema:
    """Return the schema of files of sources and targets, or of conversations; None as a column name is inferred."""
    return Schema(
        inputs=(SOURCE,),
        answer=TextAnswers(),
        asked={"source": source, "target": target},
        encoding=encoding,
        skip_empty=skip_empty,
        prepare=as_pairs,
    )


@dataclass(frozen=True)
class TextAnswers:
    """Target answers, kept as a list for each row.

    If rows have several, each becomes an example of its own in the train split (see `expanded`); in other splits the
    first is the target and all are references. Without `need`, a split has targets if any of its rows has one.
    """

    role: ClassVar[Role] = TARGET
    plural: ClassVar[str] = "targets"

    def read(self, batch: pa.RecordBatch, columns: Columns, where: str, before: int) -> tuple[pa.Array, bool]:
        """Read the targets of each row as a list, and return whether the column holds lists."""
        name = columns[TARGET.name]
        if holds_lists(plain_column(batch, name).type):
            return list_column(batch, name, where, before, TARGET.option), True
        texts = text_column(batch, name, where, before, TARGET.option)
        offsets = pa.array(np.arange(len(texts) + 1, dtype=np.int32))
        return pa.ListArray.from_arrays(offsets, texts), False

    def joined(self, pieces: Sequence[tuple[pa.Array, bool]], columns: Columns, where: str) -> tuple[pa.Array, bool]:
        """Concatenate the targets of a file, and return whether its column holds lists."""
        return pa.concat_arrays([texts for texts, _ in pieces]), any(several for _, several in pieces)

    def missing(self, table: Table) -> NDArray[np.int64]:
        """The rows of a file, counted from 0, without a target or with an empty one."""
        return _without(table, None)

    def refuse_rows(self, table: Table, rows: Rows) -> None:
        """Raise UserError for rows without a target, unless no row of the file has one."""
        if table.answers is not None and self.found([table]):
            _refuse_empty([table], rows)

    def left_out(self, tables: Sequence[Table]) -> bool:
        """Return whether no row has a target."""
        return not self.found(tables)

    def found(self, tables: Sequence[Table], rows: Rows = None) -> bool:
        """Return whether any of the rows has targets, none of them empty."""
        pieces = rows_by_table(tables, rows)
        counts = [(len(table.ids) if some is None else len(some), _without(table, some)) for table, some in pieces]
        return any(count > len(empty) for count, empty in counts)

    def attach(self, chosen: Mapping[str, Selected], name: str, need: bool) -> tuple[dict[str, Examples], None]:
        """Attach targets to the examples; raise UserError for rows without one."""
        errors = ErrorList()
        examples: dict[str, Examples] = {}
        for split, one in chosen.items():
            examples[split] = one.examples
            if not one.answered:
                continue
            with errors.catch():
                _refuse_empty(one.tables, one.rows)
                found = _with_targets(one)
                examples[split] = expanded(found) if split == "train" else found
        errors.raise_any()
        return examples, None


def expanded(examples: Examples) -> Examples:
    """Turn each pair of a source and one of its references into an example, with ids such as `17#1`, `17#2`."""
    references = examples.get("references")
    if references is None:
        return examples
    owners = pc.list_parent_indices(references).to_numpy()
    sizes = pc.list_value_length(references).to_numpy()
    number = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    inputs = {name: column.take(pa.array(owners)) for name, column in examples.inputs.items()}
    return replace(
        examples,
        ids=tuple(f"{examples.ids[row]}#{count}" for row, count in zip(owners, number, strict=True)),
        columns={**inputs, "target": references.flatten()},
    )


def references_of(examples: Examples) -> list[list[str]]:
    """The references of each example, or its only target, in the form that `evaluation.text_metrics` expects."""
    references, targets = examples.get("references"), examples.get("target")
    if references is not None:
        found: list[list[str]] = references.to_pylist()
        return found
    if targets is None:
        raise UserError(f"{examples.source}: there are no targets to compare with")
    return [[text] for text in targets.to_pylist()]


def _without(table: Table, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """The rows of a table, among those given, that have no target or an empty one among their targets."""
    if table.answers is None:
        return np.arange(len(table.ids), dtype=np.int64) if rows is None else rows
    empty = empty_lists(table.answers)
    return empty if rows is None else np.intersect1d(empty, rows)


def _refuse_empty(tables: Sequence[Table], rows: Rows) -> None:
    """Raise UserError for rows without a target, or with an empty one."""
    errors = ErrorList()
    for table, some in rows_by_table(tables, rows):
        empty = _without(table, some)
        if len(empty):
            place, column = at_rows(table.where, (empty + 1).tolist()), table.columns[TARGET.name]
            errors.add(f"{place}: the target in column {column!r} is empty; fill it in or remove the row, {SKIP}")
    errors.raise_any()


def _with_targets(one: Selected) -> Examples:
    lists = pa.concat_arrays([table.answers for table in one.tables])
    if one.rows is not None:
        lists = lists.take(pa.array(one.rows))
    first = pc.list_element(lists, 0) if len(lists) else pa.array([], type=pa.large_string())
    columns = {**one.examples.columns, "target": first}
    return replace(one.examples, columns=columns | ({"references": lists} if one.tables[0].several else {}))
