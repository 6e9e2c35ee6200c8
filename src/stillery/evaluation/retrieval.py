"""Retrieval by embeddings: every document is ranked for each query by its cosine, and scored by the judgements."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["METRICS", "RANKS", "mean_interval", "ranked", "retrieval_scores"]

RANKS = 10
"""The number of documents at the top of a ranking that count."""

METRICS = (f"ndcg@{RANKS}", f"recall@{RANKS}")

_AT_ONCE = 256
"""The number of queries whose similarities to all documents are in memory at a time."""

Array = NDArray[np.float64]


def ranked(queries: NDArray[Any], documents: NDArray[Any], most: int = RANKS) -> NDArray[np.int64]:
    """Return the indices of the `most` documents of highest cosine for each query, best first, `[queries, most]`.

    Of documents with equal cosine the first one comes first.
    """
    ours, theirs = _unit(queries), _unit(documents)
    most = min(most, len(theirs))
    found = np.empty((len(ours), most), dtype=np.int64)
    for start in range(0, len(ours), _AT_ONCE):
        scores = ours[start : start + _AT_ONCE] @ theirs.T
        found[start : start + _AT_ONCE] = np.argsort(-scores, axis=1, kind="stable")[:, :most]
    return found


def retrieval_scores(ranking: NDArray[np.int64], judged: NDArray[Any]) -> dict[str, Array]:
    """Return nDCG@10 and recall@10 of every query, in percent, by the names in `METRICS`.

    nDCG = DCG / DCG of the best order, DCG = sum_r rel_r / log2(r + 1) over the first 10 ranks; recall is the share of
    a query's documents of relevance above 0 that are among them. Documents without a judgement have relevance 0.

    Args:
        ranking: the documents of each query, best first, `[queries, ranks]`.
        judged: rows of query, document and relevance, `[judgements, 3]`; each query has a relevant document.
    """
    gains = 1 / np.log2(np.arange(2, RANKS + 2))
    ndcg, recall = np.zeros(len(ranking)), np.zeros(len(ranking))
    by_query: list[dict[int, float]] = [{} for _ in ranking]
    for query, document, relevance in judged:
        by_query[int(query)][int(document)] = max(float(relevance), 0.0)
    for row, (documents, relevant) in enumerate(zip(ranking[:, :RANKS].tolist(), by_query, strict=True)):
        found = np.array([relevant.get(document, 0.0) for document in documents])
        best = np.sort(np.array([*relevant.values()]))[::-1][:RANKS]
        ndcg[row] = 100 * (found @ gains[: len(found)]) / (best @ gains[: len(best)])
        recall[row] = 100 * (found > 0).sum() / sum(value > 0 for value in relevant.values())
    return dict(zip(METRICS, (ndcg, recall), strict=True))


def mean_interval(values: NDArray[Any], draws: int = 1000, seed: int = 0) -> tuple[float, float]:
    """Return the 95% percentile bootstrap interval of the mean of independent values, such as one per query."""
    random = np.random.default_rng(seed)
    means = [values[random.integers(0, len(values), len(values))].mean() for _ in range(draws)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def _unit(vectors: NDArray[Any]) -> Array:
    wide = vectors.astype(np.float64)
    norms: Array = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(wide / np.maximum(norms, 1e-12))
