"""Answers that are labels: a class, a score, or several labels per text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.readers.row_numbers import at_rows
from stillery.data.schema.answer import Rows, Selected, kept_rows, rows_by_table
from stillery.data.schema.columns import Columns
from stillery.data.schema.examples import Examples
from stillery.data.schema.labels import (
    SEPARATOR,
    Labels,
    encode,
    infer,
    label_name,
    missing_label,
    refuse_constant,
    refuse_joined,
)
from stillery.data.schema.multi_labels import has_lists, label_sets, refuse_lists, sets_of_columns
from stillery.data.schema.roles import QUERY, TEXT, TEXT_PAIR, Role, Schema
from stillery.data.schema.table import Table
from stillery.data.schema.values import holds_lists, plain_column, scalar_column
from stillery.errors import ErrorList, UserError
from stillery.lines import listed

__all__ = ["LABEL", "LabelAnswers", "classification"]

PARTNERS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    # QNLI: the question comes first, although `sentence` alone would be the text.
    ("question", "sentence"),
    ("question", "answer"),
    ("query", "document"),
    ("query", "passage"),
    ("text", "text_pair"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("text", "text2"),
    ("sentence", "sentence2"),
    ("first", "second"),
    ("text", "second"),
)
LABEL = Role(
    name="label",
    option="--label",
    usual=("label", "labels", "target", "class", "category", "score", "rating", "sentiment", "gold_label"),
    word="label",
    spread=True,
    cure=", or use --unlabelled to distil on texts alone",
)


def classification(
    *,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    query: str | None = None,
    labels: Labels | None = None,
    regression: bool | None = None,
    multi_label: bool | None = None,
    label_separator: str | None = None,
    max_classes: int | None = None,
    label_map: Mapping[str, str] | None = None,
    encoding: str | None = None,
    skip_empty: bool = False,
) -> Schema:
    """Return the schema of files of labelled texts: column names, a model's `labels`, ...; None is inferred.

    The parameters correspond to the command line options for such files. With a `query`, labels that are numbers are
    grades of relevance, which is to say scores.
    """
    return Schema(
        inputs=(TEXT, TEXT_PAIR),
        answer=LabelAnswers(
            labels=labels, regression=regression, multi=multi_label, separator=label_separator,
            renamed=label_map or {}, max_classes=max_classes, grades=query is not None,
        ),
        beside=() if query is None else (QUERY,),
        partners=PARTNERS,
        asked={"text": text, "text_pair": text_pair, "label": label, "query": query},
        encoding=encoding,
        skip_empty=skip_empty,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LabelAnswers:
    """Label answers, kept as written in the file until the classes are known.

    `labels` are the classes to encode with; None infers them with `regression`, `multi` and its `separator`. `renamed`
    maps names in files to names of classes. `max_classes` is how many are inferred before it is an error. With
    `grades`, whole numbers are scores too.
    """

    labels: Labels | None = None
    regression: bool | None = None
    multi: bool | None = None
    separator: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    max_classes: int | None = None
    grades: bool = False

    role: ClassVar[Role] = LABEL
    plural: ClassVar[str] = "labels"

    def read(self, batch: pa.RecordBatch, columns: Columns, where: str, before: int) -> list[Any]:
        """Read the label of each row: a value, a list of values, or the values of several label columns."""
        if columns.flags:
            return list(
                zip(*(scalar_column(batch, name, where, before, "label") for name in columns.flags), strict=True)
            )
        column = plain_column(batch, columns[LABEL.name])
        if holds_lists(column.type) and not pa.types.is_nested(column.type.value_type):
            lists: list[Any] = column.to_pylist()
            return lists
        return scalar_column(batch, columns[LABEL.name], where, before, "label; choose another with --label")

    def joined(self, pieces: Sequence[list[Any]], columns: Columns, where: str) -> tuple[list[Any], bool]:
        """Concatenate the values of a file, and return whether a text may have several labels."""
        values = [value for piece in pieces for value in piece]
        if not columns.flags:
            return values, has_lists(values) if self.multi is None else self.multi
        if self.multi is False:
            raise UserError(
                f"{where}: --label names {len(columns.flags)} columns, which is multi-label; name one column"
            )
        return values, True

    def missing(self, table: Table) -> NDArray[np.int64]:
        """The rows of a file, counted from 0, whose label is missing."""
        if table.columns.flags:
            rows = [row for row, flags in enumerate(table.answers) if all(label_name(flag) is None for flag in flags)]
        else:
            # If a text may have several labels, an empty cell is a text without labels.
            rows = [
                row
                for row, value in enumerate(table.answers)
                if value is None or (not table.several and not isinstance(value, list) and label_name(value) is None)
            ]
        return np.array(rows, dtype=np.int64)

    def refuse_rows(self, table: Table, rows: Rows) -> None:
        """Raise UserError for rows whose label is missing or, if the classes are known, not among them."""
        if table.answers is None:
            return
        if self.labels is not None:
            self._encode([table], self.labels, rows)
            return
        outside = set() if rows is None else set(range(len(table.ids))) - set(rows.tolist())
        missing = [row + 1 for row in self.missing(table).tolist() if row not in outside]
        if missing and len(missing) + len(outside) < len(table.ids):
            raise UserError(f"{at_rows(table.where, missing)}: {missing_label(table.several)}")

    def left_out(self, tables: Sequence[Table]) -> bool:
        """Return whether there is no label column."""
        return tables[0].answers is None

    def found(self, tables: Sequence[Table], rows: Rows = None) -> bool:
        """Return whether any of the rows has a value in its label columns."""
        return any(
            any(label_name(item) is not None for item in _items(table.answers[row]))
            for table, some in rows_by_table(tables, rows)
            if table.answers
            for row in (range(len(table.answers)) if some is None else some)
        )

    def attach(self, chosen: Mapping[str, Selected], name: str, need: bool) -> tuple[dict[str, Examples], Labels]:
        """Attach encoded labels to the examples; without `need`, only rows that need a label are encoded."""
        answered = {split: one for split, one in chosen.items() if one.answered}
        labels = self.labels
        if labels is None:
            if not answered:
                raise UserError(
                    f"{name}: no split has labels, so the classes are not known; name the label column (--label)"
                )
            first = next(iter(answered.values()))
            labels = self._infer(first.tables, _read_of(first) if need else first.rows)
        encoded = self._encode_all(answered, labels, need)
        examples = {split: one.examples for split, one in chosen.items()}
        for split, one in answered.items():
            values = encoded[one.files]
            examples[split] = replace(one.examples, labels=values if one.rows is None else values[one.rows])
        return examples, labels

    def _infer(self, tables: Sequence[Table], rows: Rows) -> Labels:
        """Infer the label space from the files."""
        where, several, flags = _where(tables), tables[0].several, tables[0].columns.flags
        if several and self.regression:
            raise UserError(f"{where}: a text has several labels here, which cannot be scores; leave --regression out")
        values = self._values(tables, rows)
        if not flags:
            found = infer(values, where, self.regression, several or self.multi, self.max_classes, grades=self.grades)
            if self.multi and self.separator is None:
                refuse_joined(found.names, where, _OTHER_SEPARATOR)
            self._refuse_unused(found, tables)
            return found
        labels = Labels(names=tuple(dict.fromkeys(self.renamed.get(name, name) for name in flags)), multi=True)
        refuse_constant(values, labels, where)
        return labels

    def _refuse_unused(self, labels: Labels, tables: Sequence[Table]) -> None:
        """Raise UserError for a label map with names that are not in the data, as others would stay unmapped."""
        if not self.renamed:
            return
        if labels.regression:
            raise UserError(f"{_where(tables)}: --label-map is for classes, and the labels are scores; leave it out")
        written = [value for table in tables for value in self._written(table, table.kept)]
        names = {label_name(item) for value in written for item in _items(value)} - {None}
        unused = [name for name in self.renamed if name not in names]
        if unused:
            shown = listed(sorted(name for name in names if name is not None))
            raise UserError(
                f"{_where(tables)}: --label-map has the label {unused[0]!r}, which no row has; the labels are {shown}"
            )

    def _encode_all(self, answered: Mapping[str, Selected], labels: Labels, need: bool) -> dict[str, NDArray[Any]]:
        """Encode the labels of each split's files once; without `need`, only those of the splits' rows."""
        errors = ErrorList()
        encoded: dict[str, NDArray[Any]] = {}
        for files in dict.fromkeys(one.files for one in answered.values()):
            some = [one for one in answered.values() if one.files == files]
            asked = [one.rows for one in some if one.rows is not None]
            rows = _read_of(some[0]) if need or not asked else np.sort(np.concatenate(asked))
            with errors.catch():
                encoded[files] = self._encode(some[0].tables, labels, rows)
                if need and files == "train":
                    refuse_constant(self._values(some[0].tables, rows), labels, _where(some[0].tables))
        if errors.lines and not need:
            errors.add("dev and test are scored against their labels; without a label column, against the teacher")
        errors.raise_any()
        return encoded

    def _encode(self, tables: Sequence[Table], labels: Labels, rows: Rows) -> NDArray[Any]:
        """Encode the labels of the given rows; others are 0."""
        errors = ErrorList()
        encoded: list[NDArray[Any]] = []
        for table, some in rows_by_table(tables, rows):
            with errors.catch():
                self._refuse_other_kind(table, labels)
                encoded.append(encode(self._named(table, some), labels, table.where, _listed(some)))
        errors.raise_any()
        return np.concatenate(encoded)

    def _named(self, table: Table, rows: Rows) -> list[Any]:
        """The label of each row, or the names of its labels if it may have several, renamed to the model's names.

        Rows that are not requested may have None.
        """
        values = self._written(table, rows)
        if not self.renamed:
            return values
        if not table.several:
            return [self.renamed.get(label_name(value) or "", value) for value in values]
        return [
            None if names is None else tuple(dict.fromkeys(self.renamed.get(name, name) for name in names))
            for names in values
        ]

    def _written(self, table: Table, rows: Rows) -> list[Any]:
        """The label or labels of each row by their names in the file."""
        values, some = table.answers or [], _listed(rows)
        if table.columns.flags:
            return sets_of_columns(values, table.columns.flags, table.where, some)
        if table.several:
            separator = (self.separator or SEPARATOR) if self.multi else None
            return label_sets(values, table.where, separator, some)
        refuse_lists(values, table.where, some)
        return values

    def _values(self, tables: Sequence[Table], rows: Rows) -> list[Any]:
        found: list[Any] = []
        for table, some in rows_by_table(tables, rows):
            values = self._named(table, some)
            found += values if some is None else [values[row] for row in some]
        return found

    def _refuse_other_kind(self, table: Table, labels: Labels) -> None:
        """Raise UserError for several labels per text with a model that predicts one, and vice versa."""
        if table.several and not labels.multi:
            gives = "a score" if labels.regression else "one label per text"
            raise UserError(
                f"{table.where}: a text has several labels here, the model gives {gives}; use a multi-label model"
            )
        if labels.multi and not table.several:
            raise UserError(
                f"{table.where}: the model gives several labels per text (multi-label), the label column one; use "
                "--multi-label to read it as separated labels, or give lists or 0/1 columns"
            )
        if not self.multi or table.columns.flags:
            return
        separator = self.separator or SEPARATOR
        clash = [name for name in labels.names if separator in name]
        if clash:
            raise UserError(
                f"{table.where}: the model's label {clash[0]!r} holds the separator {separator!r}; choose another "
                "with --label-separator, or give lists"
            )


_OTHER_SEPARATOR = "use --label-separator {separator} if it is, or --label-separator '|' if that is what separates them"


def _read_of(one: Selected) -> Rows:
    """All rows of a split's files that are not skipped."""
    return kept_rows(one.tables)


def _listed(rows: Rows) -> list[int] | None:
    return None if rows is None else rows.tolist()


def _where(tables: Sequence[Table]) -> str:
    more = f" and {len(tables) - 1} more" if len(tables) > 1 else ""
    return f"{tables[0].where}{more}"


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)
