"""Column roles: what the columns of a file are for, and how a kind of model reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.schema.values import empty_rows, text_column

if TYPE_CHECKING:
    from stillery.data.schema.answer import Answer
    from stillery.data.schema.columns import Columns

__all__ = ["ANSWERS", "ID", "SOURCE", "TEXT", "TEXT_PAIR", "Role", "Schema"]

ANSWERS = frozenset({"target", "references", "tags"})
"""The columns of examples that hold answers; all others are inputs of a model."""

Read = Callable[[pa.RecordBatch, str, str, int, str], pa.Array]
"""Reads a column of a batch: its name, the file, how many rows of the file were read before, and the option."""

Prepare = Callable[["Schema", pa.RecordBatch, str, int, bool], pa.RecordBatch]
"""Other columns for those of a batch: its schema, the file, how many rows were read before, whether answers must be."""

ID = ("id", "idx", "guid")
"""What a column of ids is usually called."""


@dataclass(frozen=True, kw_only=True)
class Role:
    """What a column is for.

    Args:
        name: what `Examples.columns` calls it.
        option: the option that names the column.
        usual: what such a column is usually called; the first that a file has is taken.
        word: what an error calls one value.
        title: what an error calls the column; the word for a value if nothing else is said.
        read: how the column of an input is read: large strings, or lists of them.
        empty: which rows of an input, counted from 0, are missing or empty.
        required: whether an error is raised where a file has no such column.
        spread: whether each label may have a column of its own, named `--label toxic,threat`.
        languages: columns that hold the same text in several languages; beside one of them the only other is meant.
        cure: what the error about a missing column says beside the columns there are.
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
    """How a kind of model reads files: the roles of its inputs, its kind of answer, and the columns asked for.

    `partners` are names that columns of all inputs usually have together; `asked` has column names by role. A column
    that is asked for is taken alone: of a text by name there is no second text unless it is named too. Text files are
    in the `encoding`, by default UTF-8; with `skip_empty` rows without an input or an answer are left out. `prepare`
    is what is done to each batch of a file before its columns are looked for, given whether an answer is needed.
    """

    inputs: tuple[Role, ...]
    answer: Answer
    partners: Sequence[Sequence[str]] = ()
    asked: Mapping[str, str | None] = field(default_factory=dict)
    encoding: str | None = None
    skip_empty: bool = False
    prepare: Prepare | None = None

    def prepared(self, batch: pa.RecordBatch, where: str, before: int, need: bool) -> pa.RecordBatch:
        """Rows of a file as the columns are looked for in them; `before` is the number of rows already read."""
        return batch if self.prepare is None else self.prepare(self, batch, where, before, need)

    def like(self, found: Columns) -> Schema:
        """The same for other files, whose columns must mean the same."""
        answer = self.answer.role.name
        names: dict[str, str | None] = {role.name: found.get(role.name) for role in self.inputs}
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
SOURCE = Role(
    name="source",
    option="--source",
    usual=(
        *("source", "src", "input", "inputs", "source_text", "text", "document", "article", "dialogue", "passage"),
        *("question", "prompt", "instruction", "query", "sentence", "en"),
    ),
    word="source",
)
