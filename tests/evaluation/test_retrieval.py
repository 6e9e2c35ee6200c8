"""Ranking metrics of retrieval, against scikit-learn and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from stillery.evaluation.retrieval import mean_interval, ranked, retrieval_scores


def test_documents_are_ranked_by_cosine_not_by_length() -> None:
    queries = np.array([[1.0, 0.0], [0.0, 2.0]])
    documents = np.array([[9.0, 9.0], [0.1, 0.0], [0.0, 3.0], [0.2, 0.0]])
    # Of two documents of one direction the first one comes first.
    assert ranked(queries, documents).tolist() == [[1, 3, 0, 2], [2, 0, 1, 3]]
    assert ranked(queries, documents, most=2).tolist() == [[1, 3], [2, 0]]


def test_scores_of_graded_documents_agree_with_scikit_learn() -> None:
    random = np.random.default_rng(1)
    queries, documents = random.normal(size=(20, 6)), random.normal(size=(30, 6))
    grades = random.integers(0, 4, size=(20, 30)) * (random.random((20, 30)) < 0.3)
    grades[:, 0] = 1
    judged = np.array([(query, place, grades[query, place]) for query, place in np.argwhere(grades)])
    ranking = ranked(queries, documents)
    found = retrieval_scores(ranking, judged)
    units = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in (queries, documents)]
    for row, (grade, score) in enumerate(zip(grades, units[0] @ units[1].T, strict=True)):
        assert found["ndcg@10"][row] == pytest.approx(100 * ndcg_score([grade], [score], k=10))
        top = set(np.argsort(-score)[:10]) & set(np.flatnonzero(grade))
        assert found["recall@10"][row] == pytest.approx(100 * len(top) / np.count_nonzero(grade))


def test_fewer_documents_than_ranks_and_negative_grades() -> None:
    judged = np.array([(0, 1, 2.0), (0, 0, -1.0)])
    found = retrieval_scores(np.array([[0, 1]]), judged)
    assert found["ndcg@10"][0] == pytest.approx(100 / np.log2(3)) and found["recall@10"][0] == 100


def test_the_interval_of_a_mean() -> None:
    values = np.random.default_rng(0).normal(50, 10, size=400)
    low, high = mean_interval(values)
    assert low < values.mean() < high and high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)
    assert mean_interval(np.full(5, 3.0)) == (3.0, 3.0)
