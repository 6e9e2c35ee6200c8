"""The predictions of one cell by example, and how they are read from a run's predictions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.errors import UserError
from stillery.evaluation.measures import FromSums, Measure, OnRows, class_measure, score_measure, set_measure

__all__ = ["Answers", "answers", "answers_of_function", "read_answers"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What one model predicted, example by example, as its metric on any resample of the examples.

    Attributes:
        ids: the examples, sorted.
        labels: a fingerprint of their right labels; models of one task are compared only where it is the same.
        measure: the metric of the predictions.
    """

    ids: tuple[str, ...]
    labels: str
    measure: Measure

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def score(self) -> float:
        """The metric on all examples, in percent."""
        return float(self.measure.scores(np.ones((1, len(self))))[0])


def answers(ids: Sequence[Any], gold: Sequence[Any] | NDArray[Any], measure: Measure) -> Answers:
    """Predictions by example, in the order of their ids, whatever order they come in.

    Args:
        ids: the id of each example.
        gold: its right label, which only the fingerprint is made of.
        measure: the metric of the predictions, with the examples in the order of `ids`.
    """
    names = [str(one) for one in ids]
    if not names:
        raise UserError("there are no predictions")
    if len(set(names)) < len(names):
        raise UserError("two predictions have the same id; the ids of examples must be different")
    order = np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)
    listed = gold.tolist() if isinstance(gold, np.ndarray) else list(gold)
    text = json.dumps([listed[row] for row in order], default=str)
    return Answers(
        ids=tuple(names[row] for row in order),
        labels=hashlib.blake2b(text.encode(), digest_size=16).hexdigest(),
        measure=measure.taken(order),
    )


def answers_of_function(
    ids: Sequence[Any],
    gold: NDArray[Any],
    guess: NDArray[Any],
    metric: Callable[[NDArray[Any], NDArray[Any]], float],
) -> Answers:
    """Predictions that are scored by a function of labels and predictions, such as a user's own metric, in percent."""
    return answers(ids, gold, OnRows(gold=gold, guess=guess, metric=metric))


def read_answers(
    path: Path, metric: str, *, labels: Sequence[str] | None = None, positive: str | None = None
) -> Answers:
    """The predictions of a finished run, read from its `predictions.parquet`.

    Args:
        path: the file.
        metric: the metric of the task, by its name in `metrics.json`.
        labels: the names of the labels in the order of the model's outputs; None where no metric depends on them.
            `f1_macro` of several labels is a mean over all, also over those that no example has.
        positive: the class whose F1 is meant; None is the second of `labels`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        columns = {name: table[name].to_pylist() for name in table.column_names if "probabilities" not in name}
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"{path}: not readable predictions ({reason}); score the run again") from None
    try:
        return _found(columns, metric, labels, positive)
    except UserError as error:
        raise UserError(*(f"{path}: {line}" for line in error.lines)) from None


def _found(columns: dict[str, list[Any]], metric: str, labels: Sequence[str] | None, positive: str | None) -> Answers:
    if {"id", "tokens", "tags", "prediction"} <= columns.keys():
        return _of_tags(columns, metric)
    if {"id", "references", "output"} <= columns.keys():
        return _of_texts(columns, metric)
    if not {"id", "label", "prediction"} <= columns.keys():
        raise UserError("has no columns id, label and prediction, nor those of tags or texts")
    ids, gold, guess = columns["id"], columns["label"], columns["prediction"]
    if any(one is None for one in gold):
        raise UserError("some examples have no label, so that predictions cannot be scored")
    if "query" in columns:
        return _of_queries(columns, metric)
    if isinstance(gold[0], list):
        names = sorted({*(labels or ()), *(name for sets in (*gold, *guess) for name in sets)})
        right, found = (np.array([[name in one for name in names] for one in sets]) for sets in (gold, guess))
        return answers(ids, gold, set_measure(right, found, metric))
    if isinstance(gold[0], float):
        return answers(ids, gold, score_measure(np.array(gold), np.array(guess), metric))
    return answers(ids, gold, _of_classes(gold, guess, metric, labels[1] if labels and not positive else positive))


def _of_queries(columns: dict[str, list[Any]], metric: str) -> Answers:
    """Predictions of documents that are ranked by query; the units are the queries."""
    import pyarrow as pa

    from stillery.evaluation.ranking_metrics import RANKING, OfQueries, Queries, query_measure

    queries, gold, guess = Queries.of(pa.array(columns["query"])), columns["label"], columns["prediction"]
    measure: Measure
    if metric in RANKING:
        grades, scores = (np.array(columns[name], dtype=np.float32) for name in ("grade", "relevance"))
        measure = query_measure(grades, scores, queries, metric)
    elif isinstance(gold[0], float):
        measure = OfQueries.over(np.array(gold), np.array(guess), metric, queries)
    else:
        names = sorted({*gold, *guess})
        right, found = (np.array([names.index(one) for one in values]) for values in (gold, guess))
        measure = OfQueries.over(right, found, metric, queries)
    rows: list[list[tuple[Any, Any]]] = [[] for _ in queries.names]
    for query, one, label in zip(queries.of_example.tolist(), columns["id"], gold, strict=True):
        rows[query].append((one, label))
    return answers(queries.names, [sorted(of_query) for of_query in rows], measure)


def _of_classes(gold: list[Any], guess: list[Any], metric: str, positive: str | None) -> FromSums:
    names = sorted({*gold, *guess})
    if metric == "f1":
        if positive is None:
            raise UserError("f1 is of one class: give the names of the labels, or which one is positive")
        # The class that f1 is of is class 1.
        others = [name for name in names if name != positive]
        names = [others[0] if others else "", positive, *others[1:]]
    place = {name: index for index, name in enumerate(names)}
    right, found = (np.array([place[one] for one in values]) for values in (gold, guess))
    return class_measure(right, found, metric)


def _of_tags(columns: dict[str, list[Any]], metric: str) -> Answers:
    from stillery.evaluation.entities import OUTSIDE, TagSet
    from stillery.evaluation.entity_metrics import Tagged, tag_measure

    gold, guess = columns["tags"], columns["prediction"]
    if any(one is None for one in gold):
        raise UserError("some sentences have no tags, so that predictions cannot be scored")
    found = {tag for sentence in (*gold, *guess) for tag in sentence if tag is not None}
    tag_set = TagSet(names=(OUTSIDE, *sorted(found - {OUTSIDE})))
    place = {name: index for index, name in enumerate(tag_set.names)}
    flat = [
        np.array([place.get(tag, -1) for sentence in sentences for tag in sentence], dtype=np.int64)
        for sentences in (gold, guess)
    ]
    offsets = np.cumsum([0, *map(len, gold)])
    measure = tag_measure(Tagged(tags=flat[0], offsets=offsets, tag_set=tag_set), flat[1], metric)
    return answers(columns["id"], gold, measure)


def _of_texts(columns: dict[str, list[Any]], metric: str) -> Answers:
    from stillery.evaluation.text_metrics import label_accuracy, text_measure

    outputs, references = columns["output"], columns["references"]
    if metric in ("bleu", "chrf"):
        return answers(columns["id"], references, text_measure(outputs, references, metric))
    if metric != "accuracy":
        raise UserError(f"{metric} of generated texts cannot be computed from this file; bleu, chrf and accuracy can")
    words = sorted({one[0].strip().casefold() for one in references})
    gold = label_accuracy([one[0] for one in references], words)
    # A text that names no label is a class of its own, which is always wrong.
    guess = label_accuracy(outputs, words)
    guess = np.where(guess < 0, len(words), guess)
    return answers(columns["id"], references, class_measure(gold, guess, "accuracy"))
