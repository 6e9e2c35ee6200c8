"""What one kind of answer has to say: how it is read from files and put beside the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.schema.columns import Columns
from stillery.data.schema.examples import Examples
from stillery.data.schema.labels import Labels
from stillery.data.schema.roles import Role
from stillery.data.schema.table import Table

__all__ = ["Answer", "Rows", "Selected", "kept_rows", "rows_by_table"]

Rows = NDArray[np.int64] | None
"""Which rows of all files together, counted from 0, ascending; None is all of them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Selected:
    """A split before it has its answers: the files it is from, which of their rows, and its examples.

    `files` is the split whose files they are: without a dev file, dev is some rows of train. `answered` says whether
    the split is to have answers.
    """

    files: str
    tables: Sequence[Table]
    rows: Rows
    examples: Examples
    answered: bool = True


class Answer(Protocol):
    """One kind of answer: a label, a text, a list of tags."""

    @property
    def role(self) -> Role:
        """The role of its column."""

    @property
    def plural(self) -> str:
        """What errors call the answers of a file."""

    def read(self, batch: pa.RecordBatch, columns: Columns, where: str, before: int) -> Any:
        """The answers of some rows of a file, of which `before` were read already."""

    def joined(self, pieces: Sequence[Any], columns: Columns, where: str) -> tuple[Any, bool]:
        """The answers of a whole file, and whether a row may have several."""

    def left_out(self, tables: Sequence[Table]) -> bool:
        """Whether a test split is left out because it has no answers, which is no error."""

    def found(self, tables: Sequence[Table], rows: Rows = None) -> bool:
        """Whether any of the rows has an answer."""

    def attach(
        self, chosen: Mapping[str, Selected], name: str, need: bool
    ) -> tuple[dict[str, Examples], Labels | None]:
        """The examples of each split with their answers, and the labels they are in; all errors are reported together.

        `name` calls the data set. Without `need` only answers of rows that are to have them may be refused. In `train`
        they are what is learnt.
        """


def rows_by_table(tables: Sequence[Table], rows: Rows) -> list[tuple[Table, NDArray[np.int64] | None]]:
    """Each table with the rows of it that are asked for, counted from its own first."""
    if rows is None:
        return [(table, None) for table in tables]
    ends = np.cumsum([len(table.ids) for table in tables])
    pieces = np.split(rows, np.searchsorted(rows, ends[:-1]))
    return [(table, piece - (end - len(table.ids))) for table, piece, end in zip(tables, pieces, ends, strict=True)]


def kept_rows(tables: Sequence[Table]) -> Rows:
    """The rows of all tables together that are not left out; None is all of them."""
    if all(table.kept is None for table in tables):
        return None
    starts = np.cumsum([0, *(len(table.ids) for table in tables)])
    pieces = [
        start + (np.arange(len(table.ids)) if table.kept is None else table.kept)
        for start, table in zip(starts, tables, strict=False)
    ]
    return np.concatenate(pieces).astype(np.int64)
