"""Column roles, and the schema by which a kind of model reads files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.schema.values import empty_rows, name_column, text_column

if TYPE_CHECKING:
    from stillery.data.schema.answer import Answer
    from stillery.data.schema.columns import Columns

__all__ = ["ANSWERS", "ID", "QUERY", "SOURCE", "TEXT", "TEXT_PAIR", "Role", "Schema"]

ANSWERS = frozenset({"target", "references", "tags"})
"""The columns of examples that hold answers; all others but the query are model inputs."""

Read = Callable[[pa.RecordBatch, str, str, int, str], pa.Array]
"""A function that reads a column of a batch, given its name, the file, the number of rows already read, the option."""

Prepare = Callable[["Schema", pa.RecordBatch, str, int, bool], pa.RecordBatch]
"""A function that transforms a batch: schema, batch, file, rows already read, whether answers are required."""

ID = ("id", "idx", "guid")
"""The usual names of an id column."""


@dataclass(frozen=True, kw_only=True)
class Role:
    """The role of a column.

    Args:
        name: its key in `Examples.columns`.
        option: the option that names the column.
        usual: the usual names of such a column; the first one in a file is used.
        word: the word for one value in errors.
        title: the word for the column in errors; by default `word`.
        read: reads an input column as large strings, or lists of them.
        empty: returns the rows of an input, counted from 0, that are missing or empty.
        required: whether a file without such a column is an error.
        spread: whether each label may have a column of its own, named `--label toxic,threat`.
        languages: names of columns that hold the same text in several languages; given one, the only other is chosen.
        cure: an additional remedy in the error about a missing column.
    """

    name: str
    option: str
    usual: tuple[str, ...] = ()
    word: str
    title: str = ""
    read: Read = text_column
    empty: Callable[[pa.Array], NDArray[np.int64]] = empty_rows
    required: bool = True
    spread: bool = False
    languages: tuple[str, ...] = ()
    cure: str = ""

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.word)


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The file schema of a kind of model: the roles of its inputs, its kind of answer, and the columns the user named.

    `partners` are usual combinations of names for all inputs; `asked` has column names by role. A named column is used
    alone: with a named text there is no second text unless it is named too. `encoding` is that of text files, by
    default UTF-8; with `skip_empty`, rows without an input or an answer are skipped. `prepare` transforms each batch of
    a file before its columns are assigned, given whether an answer is needed. `beside` are columns that no model reads;
    they are read only where they are named, and may be those of an input too.
    """

    inputs: tuple[Role, ...]
    answer: Answer
    beside: tuple[Role, ...] = ()
    partners: Sequence[Sequence[str]] = ()
    asked: Mapping[str, str | None] = field(default_factory=dict)
    encoding: str | None = None
    skip_empty: bool = False
    prepare: Prepare | None = None

    def prepared(self, batch: pa.RecordBatch, where: str, before: int, need: bool) -> pa.RecordBatch:
        """Apply `prepare` to a batch of rows; `before` is the number of rows already read."""
        return batch if self.prepare is None else self.prepare(self, batch, where, before, need)

    @property
    def read(self) -> tuple[Role, ...]:
        """The roles of all columns that are read, but for the answer's."""
        return (*self.inputs, *self.beside)

    def like(self, found: Columns) -> Schema:
        """A copy of the schema for other files, which must have the same columns."""
        answer = self.answer.role.name
        names: dict[str, str | None] = {role.name: found.get(role.name) for role in self.read}
        names[answer] = ",".join(found.flags) or found.get(answer) or self.asked.get(answer)
        return replace(self, asked=names)


TEXT = Role(
    name="text",
    option="--text",
    usual=(
        *("text", "sentence", "sentence1", "premise", "question", "question1", "review", "content", "body"),
        *("text1", "text_a", "document", "comment", "message", "tweet", "utterance"),
    ),
    word="text",
)
TEXT_PAIR = Role(name="text_pair", option="--text-pair", word="text", title="second text", required=False)
QUERY = Role(name="query", option="--query", word="query", read=name_column, required=False)
SOURCE = Role(
    name="source",
    option="--source",
    usual=(
        *("source", "src", "input", "inputs", "source_text", "text", "document", "article", "dialogue", "passage"),
        *("question", "prompt", "instruction", "query", "sentence", "en"),
    ),
    word="source",
)
