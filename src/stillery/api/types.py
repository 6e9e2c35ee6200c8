"""Types of the arguments of the public functions, defined without importing other libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Protocol, TypeAlias, Union

__all__ = ["Data", "HasColumnNames", "HasColumns", "Model", "Rows", "StrPath", "Table"]

StrPath: TypeAlias = Union[str, "PathLike[str]"]


class HasColumns(Protocol):
    """A pandas or polars DataFrame, or a pyarrow Table."""

    @property
    def columns(self) -> Any:
        """The columns, or their names."""


class HasColumnNames(Protocol):
    """A `datasets.Dataset` or `DatasetDict`."""

    @property
    def column_names(self) -> Any:
        """The names of its columns."""


Rows: TypeAlias = Sequence[Mapping[str, Any]] | Sequence[str]
Table: TypeAlias = HasColumns | HasColumnNames | Rows | Mapping[str, Sequence[Any]]
Data: TypeAlias = StrPath | Table | Mapping[str, Table]
Model: TypeAlias = Any
