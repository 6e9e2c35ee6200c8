"""Answers that are tags: a list for each sentence, with one tag per word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.schema.answer import Rows, Selected, rows_by_table
from stillery.data.schema.columns import Columns
from stillery.data.schema.examples import Examples
from stillery.data.schema.labels import Labels
from stillery.data.schema.roles import Role, Schema
from stillery.data.schema.table import Table
from stillery.data.schema.tags import (
    Place,
    encode_tags,
    first_lines,
    infer_tags,
    place_in,
    place_of,
    refuse_other_lengths,
    tag_column,
    word_column,
)
from stillery.data.schema.values import empty_lists
from stillery.errors import ErrorList, UserError

__all__ = ["TAGS", "TOKENS", "TagAnswers", "tagging"]

TOKENS = Role(
    name="tokens",
    option="--text",
    usual=("tokens", "words", "token", "word"),
    word="token",
    title="tokens",
    read=word_column,
    empty=empty_lists,
)
TAGS = Role(
    name="tags",
    option="--label",
    usual=("tags", "ner_tags", "ner", "labels", "label", "pos_tags", "upos", "pos", "chunk_tags"),
    word="tag",
    title="tags",
)


def tagging(
    text: str | None = None, label: str | None = None, labels: Labels | None = None, *, encoding: str | None = None
) -> Schema:
    """Return the schema of files of tagged sentences: column names and a model's tags (`labels`); None is inferred."""
    asked = {"tokens": text, "tags": label}
    return Schema(inputs=(TOKENS,), answer=TagAnswers(labels=labels), asked=asked, encoding=encoding)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tags:
    """The tags of a file's sentences as written and, for a CoNLL file, the first line of each sentence."""

    lists: pa.Array
    lines: NDArray[np.int64] | None = None

    def place(self, where: str, rows: Rows) -> Place:
        """Return a function that locates the given sentences of the file in errors."""
        whole = place_in(where, None if self.lines is None else self.lines.tolist())

        def chosen(row: int, token: int | None = None) -> str:
            return whole(row if rows is None else int(rows[row - 1]) + 1, token)

        return chosen


@dataclass(frozen=True, kw_only=True)
class TagAnswers:
    """Tag answers, kept as written in the file until the tag set is known; `labels` are those of a model."""

    labels: Labels | None = None

    role: ClassVar[Role] = TAGS
    plural: ClassVar[str] = "tags"

    def read(self, batch: pa.RecordBatch, columns: Columns, where: str, before: int) -> Tags:
        """Read the tags of each sentence, one per word."""
        words = word_column(batch, columns[TOKENS.name], where, before, TOKENS.option)
        tags = tag_column(batch, columns[TAGS.name], where, before, TAGS.option)
        refuse_other_lengths(words, tags, place_of(batch, where, before))
        return Tags(lists=tags, lines=first_lines(batch, where))

    def joined(self, pieces: Sequence[Tags], columns: Columns, where: str) -> tuple[Tags, bool]:
        """Concatenate the tags of a file."""
        lines = [piece.lines for piece in pieces if piece.lines is not None]
        lists = pa.concat_arrays([piece.lists for piece in pieces])
        return Tags(lists=lists, lines=np.concatenate(lines) if lines else None), False

    def left_out(self, tables: Sequence[Table]) -> bool:
        """Return whether there is no tag column."""
        return tables[0].answers is None

    def found(self, tables: Sequence[Table], rows: Rows = None) -> bool:
        """Return whether there is a tag column, in which every word has a tag."""
        return not self.left_out(tables)

    def attach(self, chosen: Mapping[str, Selected], name: str, need: bool) -> tuple[dict[str, Examples], Labels]:
        """Attach tags to the examples as a column; raise UserError for a tag that the model, or train, lacks."""
        answered = {split: one for split, one in chosen.items() if one.answered}
        labels = self.labels
        if labels is None:
            if not answered:
                raise UserError(
                    f"{name}: no split has tags, so which there are is not known; name their column (--label)"
                )
            tables = next(iter(answered.values())).tables
            labels = Labels(names=infer_tags([table.answers.lists for table in tables], tables[0].where))
        examples, errors = {split: one.examples for split, one in chosen.items()}, ErrorList()
        for split, one in answered.items():
            with errors.catch():
                examples[split] = _with_tags(one, labels)
        errors.raise_any()
        return examples, labels


def _with_tags(one: Selected, labels: Labels) -> Examples:
    """Add the tags in a split's files to its examples."""
    lists = []
    for table, rows in rows_by_table(one.tables, one.rows):
        tags: Tags = table.answers
        chosen = tags.lists if rows is None else tags.lists.take(pa.array(rows))
        encode_tags(chosen, labels.names, tags.place(table.where, rows))
        lists.append(chosen)
    return replace(one.examples, columns={**one.examples.columns, TAGS.name: pa.concat_arrays(lists)})
