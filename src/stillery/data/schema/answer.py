"""Protocol of a kind of answer (labels, texts or tags): how it is read from files and attached to examples."""

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
"""Row indices over all files together, from 0 and ascending; None is all rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Selected:
    """A split before its answers are attached: its files, its rows of them, and its examples.

    `files` names the split that the files belong to: without a dev file, dev is some rows of train. `answered` is
    whether the split needs answers.
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
        """The word for the answers of a file in errors."""

    def read(self, batch: pa.RecordBatch, columns: Columns, where: str, before: int) -> Any:
        """Read the answers of a batch of rows; `before` is the number of rows already read."""

    def joined(self, pieces: Sequence[Any], columns: Columns, where: str) -> tuple[Any, bool]:
        """Concatenate the answers of a file, and return whether a row may have several."""

    def left_out(self, tables: Sequence[Table]) -> bool:
        """Return whether a test split is skipped because it has no answers, which is not an error."""

    def found(self, tables: Sequence[Table], rows: Rows = None) -> bool:
        """Return whether any of the rows has an answer."""

    def attach(
        self, chosen: Mapping[str, Selected], name: str, need: bool
    ) -> tuple[dict[str, Examples], Labels | None]:
        """Attach the answers to the examples of each split, and return the label space; errors are reported together.

        `name` is the name of the data set. Without `need`, only answers of rows that need them are validated. Those of
        `train` are training targets.
        """


def rows_by_table(tables: Sequence[Table], rows: Rows) -> list[tuple[Table, NDArray[np.int64] | None]]:
    """Each table with its selected rows, counted from its own first row."""
    if rows is None:
        return [(table, None) for table in tables]
    ends = np.cumsum([len(table.ids) for table in tables])
    pieces = np.split(rows, np.searchsorted(rows, ends[:-1]))
    return [(table, piece - (end - len(table.ids))) for table, piece, end in zip(tables, pieces, ends, strict=True)]


def kept_rows(tables: Sequence[Table]) -> Rows:
    """The rows of all tables together that are not skipped; None is all of them."""
    if all(table.kept is None for table in tables):
        return None
    starts = np.cumsum([0, *(len(table.ids) for table in tables)])
    pieces = [
        start + (np.arange(len(table.ids)) if table.kept is None else table.kept)
        for start, table in zip(starts, tables, strict=False)
    ]
    return np.concatenate(pieces).astype(np.int64)
