"""Stored predictions of a finished run, loaded without its model to compare runs example by example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stillery.errors import UserError
from stillery.evaluation.bootstrap import COUNTED
from stillery.evaluation.entities import TagSet
from stillery.evaluation.entity_metrics import ENTITY_METRICS, Tagged, tag_measure
from stillery.evaluation.measures import CORRELATIONS, Measure, measured
from stillery.evaluation.multi_label_metrics import SET_METRICS
from stillery.evaluation.ranking_metrics import RANKING, OfQueries, Queries, query_measure
from stillery.evaluation.text_metrics import text_measure
from stillery.lines import listed

__all__ = ["Ranking", "Recorded", "measures", "read_predictions"]


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """The prediction columns of one kind of model: gold answers, outputs of model and teacher, and inputs."""

    right: str
    given: str
    teacher: str
    read: str | None = None

    def in_file(self, names: set[str]) -> bool:
        """Return whether a file with these column names was written by this kind of model."""
        return {"id", self.given, self.read or self.right} <= names


_KINDS: Mapping[str, _Columns] = {
    "generates text": _Columns(right="references", given="output", teacher="teacher_output", read="source"),
    "tags words": _Columns(right="tags", given="prediction", teacher="teacher_prediction", read="tokens"),
    "classifies texts": _Columns(right="label", given="prediction", teacher="teacher_prediction"),
}
"""The columns that each kind of model writes; the first kind whose columns a file has is chosen."""

_RANKED = ("query", "grade", "relevance", "teacher_relevance")
"""The further columns of documents that are ranked by query."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranking:
    """Documents of queries: the query of each example, its grade, and what a model and its teacher rank it by."""

    query: pa.Array
    grade: pa.Array
    relevance: pa.Array
    teacher: pa.Array | None = None

    def take(self, rows: pa.Array) -> Ranking:
        """The examples in another order."""
        teacher = None if self.teacher is None else self.teacher.take(rows)
        return Ranking(
            query=self.query.take(rows), grade=self.grade.take(rows), relevance=self.relevance.take(rows),
            teacher=teacher,
        )  # fmt: skip

    def of_teacher(self) -> Ranking:
        """The same with the teacher's relevance in place of the model's."""
        assert self.teacher is not None
        return replace(self, relevance=self.teacher, teacher=None)

    def tied(self) -> Ranking:
        """The same with all documents ranked alike."""
        return replace(self, relevance=pa.array(np.zeros(len(self.query), dtype=np.float32)))

    def measure(self, metric: str, gold: NDArray[Any] | None = None, guess: NDArray[Any] | None = None) -> Measure:
        """A metric of the ranking, or else one of labels and predictions; its resamples count queries."""
        queries = Queries.of(self.query)
        if metric in RANKING:
            return query_measure(_numbers(self.grade), _numbers(self.relevance), queries, metric)
        assert gold is not None and guess is not None
        return OfQueries.over(gold, guess, metric, queries)


@dataclass(frozen=True, kw_only=True, eq=False)
class Recorded:
    """Stored predictions: ids, gold answers (None without any), and outputs of a model and its teacher.

    `does` describes the kind of model in words; `read` has its inputs, if the file has them. `ranking` is of pairs of
    query and document.
    """

    does: str
    ids: pa.Array
    right: pa.Array | None
    given: pa.Array
    teacher: pa.Array | None = None
    read: pa.Array | None = None
    ranking: Ranking | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def units(self) -> pa.Array:
        """The names of what resamples count: the queries of a ranking, else the ids of the examples."""
        return self.ids if self.ranking is None else self.ranking.query.unique()

    def in_order_of(self, ids: pa.Array) -> Recorded:
        """Reorder the examples by these ids, which must be the same set."""
        if self.ids.equals(ids):
            return self
        places = {name: place for place, name in enumerate(self.ids.to_pylist())}
        rows = pa.array([places[name] for name in ids.to_pylist()], type=pa.int64())

        def taken(column: pa.Array | None) -> pa.Array | None:
            return None if column is None else column.take(rows)

        return replace(
            self, ids=ids, right=taken(self.right), given=taken(self.given), teacher=taken(self.teacher),
            read=taken(self.read), ranking=None if self.ranking is None else self.ranking.take(rows),
        )  # fmt: skip

    def of_teacher(self) -> Recorded:
        """The same examples with the teacher's outputs in place of the model's."""
        assert self.teacher is not None
        ranking = None if self.ranking is None else self.ranking.of_teacher()
        return replace(self, given=self.teacher, teacher=None, ranking=ranking)

    def always(self, column: pa.Array) -> Recorded:
        """The same examples with one output for all of them, by which no document is before another."""
        return replace(self, given=column, ranking=None if self.ranking is None else self.ranking.tied())


def read_predictions(path: Path) -> Recorded:
    """Read a run's `predictions.parquet`; raise UserError for a file without its columns."""
    try:
        with pq.ParquetFile(path) as file:
            names = set(file.schema_arrow.names)
            kind = next((each for each in _KINDS.items() if each[1].in_file(names)), None)
            if kind is None:
                raise UserError(f"{path}: not the columns that a run writes ({', '.join(sorted(names)[:8])})")
            does, columns = kind
            wanted = ["id", columns.right, columns.given, columns.teacher, columns.read, *_RANKED]
            table = file.read(columns=[name for name in wanted if name in names])
    except FileNotFoundError:
        raise UserError(f"{path}: no such file, so this run cannot be compared with others") from None
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:100]
        raise UserError(f"{path}: cannot be read ({reason}); copy the run again") from None
    held = {name: table[name].combine_chunks() for name in table.column_names}
    right, given = held.get(columns.right), held[columns.given]
    if len(table) == 0 or given.null_count or held["id"].null_count:
        raise UserError(f"{path}: holds no predictions, or some are missing; copy the run again")
    return Recorded(
        ranking=_ranking(held, path),
        does=does, ids=held["id"].cast(pa.string()), given=given, teacher=held.get(columns.teacher),
        right=None if right is None or right.null_count else right,
        read=None if columns.read is None else held.get(columns.read),
    )  # fmt: skip


def _ranking(held: Mapping[str, pa.Array], path: Path) -> Ranking | None:
    """The ranking in a file's columns; None where it has no queries, or no labels."""
    if "query" not in held or ("grade" in held and held["grade"].null_count):
        return None
    lacking = [name for name in _RANKED[:3] if name not in held or held[name].null_count]
    if lacking:
        raise UserError(f"{path}: holds queries, but some of {listed(lacking)} is missing; copy the run again")
    return Ranking(
        query=held["query"], grade=held["grade"], relevance=held["relevance"], teacher=held.get("teacher_relevance")
    )


def measures(all_given: Sequence[Recorded], metric: str, classes: Sequence[str] = ()) -> list[list[Measure]]:
    """Return a metric of several models on the same examples, for a paired bootstrap.

    Each inner list has one measure per model. There are two lists if the metric depends on which of two classes is the
    positive one, which predictions do not record: its known value tells which applies. The list is empty for a metric
    that cannot be computed from predictions.

    Args:
        all_given: the predictions, all with the examples in the same order.
        metric: as in `metrics.json`; without gold answers, `agreement` is with the teacher.
        classes: the names of the classes in the model's order, as far as they are known.
    """
    first = all_given[0]
    right, given = first.right, [one.given for one in all_given]
    if right is None:
        right = first.teacher
        metric = {"agreement": "accuracy", "entity_agreement": "f1"}.get(metric, "")
        if right is None or not metric:
            return []
        if pa.types.is_floating(right.type):
            metric = "pearson"
    if first.does == "tags words":
        return _tags(right, given, metric)
    if first.does == "generates text":
        return _texts(right, given, metric)
    rankings = [one.ranking for one in all_given]
    if metric in RANKING:
        return [[one.measure(metric) for one in rankings if one is not None]] if None not in rankings else []
    if pa.types.is_floating(right.type):
        return [_pairs(rankings, [_numbers(one) for one in (right, *given)], metric)] if metric in CORRELATIONS else []
    if pa.types.is_list(right.type):
        # Agreement on label sets counts every label, but a stored set only names the positive ones.
        return _sets(right, given, metric, classes) if first.right is not None else []
    columns = [one.to_pylist() for one in (right, *given)]
    return _classes(columns, metric, classes, rankings) if metric in COUNTED else []


def _pairs(rankings: Sequence[Ranking | None], columns: Sequence[NDArray[Any]], metric: str) -> list[Measure]:
    """A metric of labels, the first column, and each model's predictions."""
    gold, *guesses = columns
    return [
        measured(gold, guess, metric) if ranking is None else ranking.measure(metric, gold, guess)
        for ranking, guess in zip(rankings, guesses, strict=True)
    ]


def _numbers(column: pa.Array) -> NDArray[Any]:
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _classes(
    columns: Sequence[Sequence[str]], metric: str, classes: Sequence[str], rankings: Sequence[Ranking | None]
) -> list[list[Measure]]:
    """Measures for one class per text; the first column is gold."""
    there = {name for column in columns for name in column}
    names = [*classes, *sorted(there.difference(classes))]
    if metric != "f1":
        orders = [names]
    elif len(names) > 2:
        return []
    else:
        # A single class may be the positive or the negative one.
        padded = [*names, *[""] * (2 - len(names))]
        orders = [padded, padded[::-1]]
    found = []
    for order in orders:
        places = {name: place for place, name in enumerate(order)}
        found.append(_pairs(rankings, [np.array([places[name] for name in column]) for column in columns], metric))
    return found


def _sets(right: pa.Array, given: Sequence[pa.Array], metric: str, classes: Sequence[str]) -> list[list[Measure]]:
    if metric not in SET_METRICS:
        return []
    columns = [column.to_pylist() for column in (right, *given)]
    names = [*classes, *sorted({name for column in columns for row in column for name in row}.difference(classes))]
    places = {name: place for place, name in enumerate(names)}
    rows = []
    for column in columns:
        held = np.zeros((len(column), len(names)), dtype=np.int64)
        for row, found in enumerate(column):
            held[row, [places[name] for name in found]] = 1
        rows.append(held)
    return [[measured(rows[0], one, metric) for one in rows[1:]]]


def _tags(right: pa.Array, given: Sequence[pa.Array], metric: str) -> list[list[Measure]]:
    if metric not in ENTITY_METRICS:
        return []
    lengths = [np.diff(column.offsets.to_numpy()) for column in (right, *given)]
    if any(not np.array_equal(lengths[0], each) for each in lengths):
        raise UserError("the predictions do not have a tag for each word; copy the runs again")
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths[0], dtype=np.int64)])
    columns = [column.flatten().to_pylist() for column in (right, *given)]
    names = tuple(sorted({name for column in columns for name in column if name is not None}))
    # A word that was truncated has no tag.
    places = {name: place for place, name in enumerate(names)} | {None: -1}
    gold, *guesses = (np.array([places[name] for name in column], dtype=np.int64) for column in columns)
    tagged = Tagged(tags=gold, offsets=offsets, tag_set=TagSet(names=names))
    if metric != "accuracy" and not tagged.tag_set.marks_entities:
        return []
    return [[tag_measure(tagged, guess, metric) for guess in guesses]]


def _texts(right: pa.Array, given: Sequence[pa.Array], metric: str) -> list[list[Measure]]:
    references, outputs = right.to_pylist(), [column.to_pylist() for column in given]
    if metric in ("bleu", "chrf"):
        return [[text_measure(texts, references, metric) for texts in outputs]]
    # Texts that are class names; any other text is wrong.
    gold = [texts[0].strip().casefold() for texts in references]
    names = sorted(set(gold))
    if metric != "accuracy" and (len(names) != 2 or metric not in COUNTED):
        return []
    columns = [gold]
    for texts in outputs:
        plain = [text.strip().casefold() for text in texts]
        columns.append([_named(text, right, names) for text, right in zip(plain, gold, strict=True)])
    return _classes(columns, metric, (), [None] * len(outputs))


def _named(text: str, right: str, names: Sequence[str]) -> str:
    """The class that a text names, or a wrong class if it names none."""
    if text in names:
        return text
    return next((name for name in names if name != right), "")
