"""Evaluation of sentence embeddings: pairs with scores, retrieval, and beside those of a teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.data.schema.labels import Labels
from stillery.evaluation.report import evaluation
from stillery.evaluation.retrieval import METRICS, mean_interval, ranked, retrieval_scores

__all__ = [
    "SIMILARITY", "closeness", "closeness_evaluation", "cosines", "pair_cosines", "pair_evaluation",
    "retrieval_evaluation", "retrieved",
]  # fmt: skip

SIMILARITY = Labels(regression=True)
"""The scores of pairs of texts, as labels."""

Vectors = NDArray[np.float32]
Array = NDArray[np.float64]


def cosines(left: NDArray[Any], right: NDArray[Any]) -> Array:
    """Return the cosine of each row of two arrays of vectors `[n, size]`."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.asarray((left * right).sum(axis=1) / np.maximum(norms, 1e-12))


def pair_cosines(vectors: Vectors) -> Array:
    """Return the cosine of the two texts of each pair, of vectors of all first texts and then all second ones."""
    half = len(vectors) // 2
    return cosines(vectors[:half], vectors[half:])


def closeness(student: Vectors, teacher: Vectors) -> float | None:
    """Return the mean cosine of two models' embeddings of the same texts, times 100; None if their sizes differ."""
    return 100 * float(cosines(student, teacher).mean()) if student.shape == teacher.shape else None


def pair_evaluation(task: str, gold: NDArray[Any], student: Vectors, teacher: Vectors | None) -> dict[str, Any]:
    """Return the correlations of the pairs' cosines with their scores, times 100 and with intervals."""
    ours, theirs = (None if one is None else pair_cosines(one)[:, None] for one in (student, teacher))
    assert ours is not None
    return evaluation(task, gold, ours, SIMILARITY, theirs, ("spearman", "pearson")) | _beside(student, teacher)


def retrieved(gold: NDArray[Any], vectors: Vectors) -> NDArray[np.int64]:
    """Return the first documents for each query; the vectors are those of all queries, and then all documents."""
    queries = int(gold[:, 0].max()) + 1
    return ranked(vectors[:queries], vectors[queries:])


def retrieval_evaluation(task: str, gold: NDArray[Any], student: Vectors, teacher: Vectors | None) -> dict[str, Any]:
    """Return nDCG@10 and recall@10 in percent, with intervals over the queries."""
    ours = retrieval_scores(retrieved(gold, student), gold)
    found: dict[str, Any] = {
        "task": task,
        "examples": len(ours[METRICS[0]]),
        "documents": len(student) - len(ours[METRICS[0]]),
        "metrics": _means(ours),
        "intervals": {name: _pair(mean_interval(values)) for name, values in ours.items()},
    }
    if teacher is None:
        return found
    theirs, main = retrieval_scores(retrieved(gold, teacher), gold), METRICS[0]
    gaps = ours[main] - theirs[main]
    difference = {"metric": main, "value": round(float(gaps.mean()), 4), "interval": _pair(mean_interval(gaps))}
    return found | {"teacher_metrics": _means(theirs), "difference": difference} | _beside(student, teacher)


def closeness_evaluation(task: str, student: Vectors, teacher: Vectors) -> dict[str, Any]:
    """Return the mean cosine to the teacher's embeddings, times 100, of texts that have no scores."""
    values = 100 * cosines(student, teacher)
    return {
        "task": task,
        "examples": len(values),
        "metrics": {"cosine": round(float(values.mean()), 4)},
        "intervals": {"cosine": _pair(mean_interval(values))},
        "unlabelled": True,
    }


def _beside(student: Vectors, teacher: Vectors | None) -> dict[str, float]:
    value = None if teacher is None else closeness(student, teacher)
    return {} if value is None else {"teacher_cosine": round(value, 4)}


def _means(scores: Mapping[str, Array]) -> dict[str, float]:
    return {name: round(float(values.mean()), 4) for name, values in scores.items()}


def _pair(between: tuple[float, float]) -> list[float]:
    return [round(between[0], 4), round(between[1], 4)]
