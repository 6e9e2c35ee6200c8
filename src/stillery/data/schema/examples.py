"""Examples of any kind of task (ids, named columns and labels) and their splits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stillery.data.schema.labels import Labels
from stillery.data.schema.roles import ANSWERS, QUERY
from stillery.data.schema.splits import cut, text_keys
from stillery.data.schema.values import holds_lists

__all__ = ["HELD_OUT", "SHARES", "Examples", "Splits", "columns_of", "hash_columns", "split"]

SHARES = (0.8, 0.1, 0.1)
"""The shares of train, dev and test when a single file is split."""

HELD_OUT = (0.9, 0.1)
"""The shares of train and dev when a train file is split because there is no dev file."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Ids, columns by role (Arrow, without Python strings), and encoded labels if there are any.

    Classification has the columns `text` and optionally `text_pair`; generation has `source`, optionally `target` and,
    if there are several correct texts, `references`, the first of which is the target; token classification has the
    list columns `tokens` and optionally `tags`. Beside
    the inputs, `query` names the query whose documents are ranked. Columns are large strings or lists of them; their
    order matters.
    `source` describes the origin of the examples.
    """

    ids: tuple[str, ...]
    columns: Mapping[str, pa.Array]
    labels: NDArray[Any] | None = None
    source: str

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, role: str) -> pa.Array:
        """The column of a role."""
        return self.columns[role]

    def get(self, role: str) -> pa.Array | None:
        """The column of a role, if there is one."""
        return self.columns.get(role)

    def take(self, indices: Sequence[int] | NDArray[Any]) -> Examples:
        """The examples at these positions, in this order."""
        rows = np.asarray(indices, dtype=np.int64)
        chosen = pa.array(rows)
        return replace(
            self,
            ids=tuple(self.ids[row] for row in rows),
            columns={name: column.take(chosen) for name, column in self.columns.items()},
            labels=None if self.labels is None else self.labels[rows],
        )

    @property
    def inputs(self) -> dict[str, pa.Array]:
        """The input columns of a model."""
        return {name: column for name, column in self.columns.items() if name not in ANSWERS and name != QUERY.name}

    @property
    def kept_together(self) -> list[pa.Array]:
        """The columns whose equal rows are never in two splits: the query, or without one the inputs."""
        return [self.columns[QUERY.name]] if QUERY.name in self.columns else list(self.inputs.values())

    @cached_property
    def text_fingerprint(self) -> str:
        """The sha256 of everything tokens depend on: inputs and targets, not ids, labels, references and tags."""
        named = {name: column for name, column in self.columns.items() if name != QUERY.name}
        names = [name for name, column in named.items() if name in self.inputs or not holds_lists(column.type)]
        digest = hashlib.sha256()
        _hash_named(digest, {name: self.columns[name] for name in names})
        return digest.hexdigest()

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of ids, columns and labels."""
        digest = hashlib.sha256()
        hash_columns(digest, pa.array(self.ids, type=pa.large_string()))
        _hash_named(digest, self.columns)
        if self.labels is not None:
            digest.update(f"{self.labels.dtype}{self.labels.shape}".encode())
            digest.update(np.ascontiguousarray(self.labels).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Splits:
    """The train, dev and test splits of one data set, with a common label space if it has labels.

    `metrics` are the metrics of a named task; `more` are further splits to score on, by name.
    """

    train: Examples
    dev: Examples
    test: Examples | None
    labels: Labels | None = None
    source: str
    note: str
    metrics: tuple[str, ...] | None = None
    more: Mapping[str, Examples] = field(default_factory=dict)

    @property
    def label_space(self) -> Labels:
        """The labels of a data set that has them."""
        assert self.labels is not None, f"{self.source} has no labels"
        return self.labels


def columns_of(**columns: pa.Array | None) -> dict[str, pa.Array]:
    """The columns that are not None, by role.

    >>> columns_of(text=pa.array(["a"]), text_pair=None).keys()
    dict_keys(['text'])
    """
    return {role: column for role, column in columns.items() if column is not None}


def split(examples: Examples, shares: Sequence[float] = SHARES, seed: int = 0) -> tuple[Examples, ...]:
    """Split examples as a function of their inputs and the seed; an input, or a query, is never in two splits."""
    keys = text_keys(examples.kept_together, seed)
    return tuple(examples.take(rows) for rows in cut(keys, shares, examples.source))


def hash_columns(digest: Any, *columns: pa.Array | None) -> None:
    """Add columns of large strings, or a marker for None, to a digest."""
    for column in columns:
        digest.update(b"-" if column is None else b"+")
        if column is not None:
            _hash_strings(digest, column)


def _hash_named(digest: Any, columns: Mapping[str, pa.Array]) -> None:
    """Add columns to a digest: string columns first, padded to two with markers for None; then list columns."""
    strings = [column for column in columns.values() if not holds_lists(column.type)]
    hash_columns(digest, *strings, *[None] * (2 - len(strings)))
    for column in columns.values():
        if holds_lists(column.type):
            digest.update(pc.list_value_length(column).to_numpy().astype("<i8").tobytes())
            hash_columns(digest, column.flatten())


def _hash_strings(digest: Any, array: pa.Array) -> None:
    lengths = np.diff(_offsets(array))
    digest.update(len(lengths).to_bytes(8, "little") + lengths.astype("<i8").tobytes())
    start, end = (int(_offsets(array)[end]) for end in (0, -1))
    if end > start:
        digest.update(memoryview(array.buffers()[2])[start:end])


def _offsets(array: pa.Array) -> NDArray[np.int64]:
    if len(array) == 0:
        return np.zeros(1, dtype=np.int64)
    return np.frombuffer(array.buffers()[1], dtype=np.int64)[array.offset : array.offset + len(array) + 1]
