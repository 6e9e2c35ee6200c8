"""Ranking of each query's documents: nDCG@10, MRR and MAP, and their resamples, which draw queries.

Tied documents have the expected score of all orders of them, so a metric depends neither on the order of a file nor
on chance. nDCG counts a grade as its gain (linear, as scikit-learn and trec_eval do); MRR and MAP take grades above 0
as relevant. A query whose documents all have one grade is left out of the means: every order of them is equally good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.evaluation.measures import FromSums, Measure, measured

__all__ = ["RANKING", "OfQueries", "Queries", "concordant_pairs", "query_measure", "query_values"]

Array = NDArray[np.float64]

CUT = 10
LARGEST = 10_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Queries:
    """The queries of examples: their names in order of appearance, and the index of each example's query `[n]`."""

    names: tuple[str, ...]
    of_example: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of(cls, column: pa.Array) -> Queries:
        """Group the examples that have the same value in a column."""
        coded = column.dictionary_encode()
        return cls(
            names=tuple(str(name) for name in coded.dictionary.to_pylist()),
            of_example=coded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        )

    def counts(self, grades: NDArray[Any]) -> dict[str, int]:
        """Count the queries, those that are ranked, and those that are left out, by the reason."""
        lowest, highest = self._range(grades)
        sizes = np.bincount(self.of_example, minlength=len(self))
        one, equal = sizes == 1, lowest == highest
        return {
            "all": len(self),
            "ranked": int((~equal).sum()),
            "one_document": int(one.sum()),
            "no_relevant": int((equal & ~one & (highest <= 0)).sum()),
            "one_grade": int((equal & ~one & (highest > 0)).sum()),
        }

    def ranked(self, grades: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether the documents of each query differ in their grade, so that their order matters."""
        lowest, highest = self._range(grades)
        return lowest < highest

    def _range(self, grades: NDArray[Any]) -> tuple[Array, Array]:
        lowest, highest = np.full(len(self), np.inf), np.full(len(self), -np.inf)
        np.minimum.at(lowest, self.of_example, grades.astype(np.float64))
        np.maximum.at(highest, self.of_example, grades.astype(np.float64))
        return lowest, highest


def query_values(grades: NDArray[Any], scores: NDArray[Any], queries: Queries, metric: str) -> Array:
    """The metric of each query between 0 and 1, NaN where it is not ranked.

    Args:
        grades: the relevance of each document, 0 or above `[n]`.
        scores: what a model ranks the documents by `[n]`, the highest first.
        queries: the query of each document.
        metric: one of `RANKING`.
    """
    value, found = RANKING[metric], np.full(len(queries), np.nan)
    order = np.argsort(queries.of_example, kind="stable")
    ends = np.cumsum(np.bincount(queries.of_example, minlength=len(queries)))
    for query in np.flatnonzero(queries.ranked(grades)):
        rows = order[ends[query - 1] if query else 0 : ends[query]]
        found[query] = value(_Tied.of(grades[rows], scores[rows]))
    return found


def concordant_pairs(left: NDArray[Any], right: NDArray[Any], queries: Queries) -> Array:
    """The share of each query's pairs of documents that two models order alike, NaN for one document.

    Without ties it is (1 + Kendall's tau) / 2. A pair that one model ties counts half, one that both tie counts fully.

    Args:
        left: what one model ranks the documents by `[n]`.
        right: what the other ranks them by `[n]`.
        queries: the query of each document.
    """
    found, order = np.full(len(queries), np.nan), np.argsort(queries.of_example, kind="stable")
    sizes = np.bincount(queries.of_example, minlength=len(queries))
    ends = np.cumsum(sizes)
    for query in np.flatnonzero(sizes > 1):
        rows = order[ends[query] - sizes[query] : ends[query]]
        ours, theirs = left[rows].astype(np.float64), right[rows].astype(np.float64)
        # Row by row: a matrix of all pairs of a query may not fit into memory.
        discordant = sum(
            float(np.abs(np.sign(ours[place] - ours[:place]) - np.sign(theirs[place] - theirs[:place])).sum())
            for place in range(1, len(rows))
        )
        found[query] = 1 - discordant / (len(rows) * (len(rows) - 1))
    return found


def query_measure(grades: NDArray[Any], scores: NDArray[Any], queries: Queries, metric: str) -> Measure:
    """A metric of rankings in percent, the mean over queries; its resamples count queries."""
    values = query_values(grades, scores, queries, metric)
    counted = np.isfinite(values)
    mean = float(values[counted].mean()) if counted.any() else 0.0

    def value(sums: Array) -> Array:
        # A resample may by chance hold no query that is ranked; it then says nothing.
        found: Array = np.divide(sums[:, 0], sums[:, 1], out=np.full(len(sums), mean), where=sums[:, 1] > 0)
        return 100 * found

    return FromSums(rows=np.stack([np.where(counted, values, 0.0), counted], axis=1).astype(np.float64), value=value)


@dataclass(frozen=True, kw_only=True, eq=False)
class OfQueries:
    """A metric of examples, such as a correlation, whose resamples count queries: examples of a query go together.

    `places` are the queries that resamples count, in their order.
    """

    measure: Measure
    queries: Queries
    places: NDArray[np.int64]

    @classmethod
    def over(cls, gold: NDArray[Any], guess: NDArray[Any], metric: str, queries: Queries) -> OfQueries:
        """A metric of classes or scores `[n]`."""
        return cls(measure=measured(gold, guess, metric), queries=queries, places=np.arange(len(queries)))

    def scores(self, times: Array) -> Array:
        """The score of each resample."""
        pieces = np.array_split(times, max(1, len(times) * len(self.queries.of_example) // LARGEST))
        return np.concatenate([self._scores(piece) for piece in pieces if len(piece)])

    def _scores(self, times: Array) -> Array:
        of_all = np.zeros((len(times), len(self.queries)))
        of_all[:, self.places] = times
        return self.measure.scores(of_all[:, self.queries.of_example])

    def taken(self, order: NDArray[np.int64]) -> OfQueries:
        """The same with the queries in another order, or some of them."""
        return replace(self, places=self.places[order])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Tied:
    """A query's documents, ranked in groups of equal scores, the best group first.

    Attributes:
        grades: the grades of the documents, in no order.
        gain: the mean grade of each group.
        relevant: the number of relevant documents of each group.
        size: the number of documents of each group.
        before: the number of documents ranked before each group.
    """

    grades: Array
    gain: Array
    relevant: NDArray[np.int64]
    size: NDArray[np.int64]
    before: NDArray[np.int64]

    @classmethod
    def of(cls, grades: NDArray[Any], scores: NDArray[Any]) -> _Tied:
        grades = grades.astype(np.float64)
        _, group, size = np.unique(-scores, return_inverse=True, return_counts=True)
        return cls(
            grades=grades,
            gain=np.bincount(group, weights=grades) / size,
            relevant=np.bincount(group[grades > 0], minlength=len(size)),
            size=size,
            before=np.cumsum(size) - size,
        )


def _ndcg(tied: _Tied) -> float:
    documents = len(tied.grades)
    discount = 1 / np.log2(np.arange(2, documents + 2))
    discount[CUT:] = 0
    summed = np.concatenate([[0.0], np.cumsum(discount)])
    found = tied.gain @ (summed[tied.before + tied.size] - summed[tied.before])
    return float(found / (np.sort(tied.grades)[::-1] @ discount))


def _reciprocal_rank(tied: _Tied) -> float:
    group = int(np.argmax(tied.relevant > 0))
    size, relevant, before = int(tied.size[group]), int(tied.relevant[group]), int(tied.before[group])
    # The probability that the first relevant document of the group is at place 1, 2, ... of it.
    places = np.arange(1, size - relevant + 2)
    chance = relevant / size * np.cumprod(np.concatenate([[1.0], 1 - (relevant - 1) / (size - places[:-1])]))
    return float((chance / (before + places)).sum())


def _average_precision(tied: _Tied) -> float:
    group = np.repeat(np.arange(len(tied.size)), tied.size)
    rank = np.arange(1, len(group) + 1)
    size, relevant, earlier = tied.size[group], tied.relevant[group], (np.cumsum(tied.relevant) - tied.relevant)[group]
    # The expected number of relevant documents before one of its group (McSherry and Najork, 2008).
    within = (rank - tied.before[group] - 1) * (relevant - 1) / np.maximum(size - 1, 1)
    precision = (earlier + within + 1) / rank
    return float((relevant / size * precision).sum() / tied.relevant.sum())


RANKING: Mapping[str, Callable[[_Tied], float]] = {"ndcg@10": _ndcg, "mrr": _reciprocal_rank, "map": _average_precision}
"""The metrics of rankings: each takes a query's documents in groups of equal scores."""
