"""nDCG@10, MRR and MAP of queries, against scikit-learn, numbers worked out by hand, and every order of ties."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import kendalltau
from sklearn.metrics import average_precision_score, ndcg_score

from stillery.data.schema.labels import Labels
from stillery.errors import UserError
from stillery.evaluation import paired
from stillery.evaluation.metrics import score
from stillery.evaluation.ranking_metrics import (
    RANKING,
    OfQueries,
    Queries,
    concordant_pairs,
    query_measure,
    query_values,
)
from stillery.evaluation.ranking_report import rank_agreement, ranking_evaluation

GRADES = Labels(regression=True)


def queries(*sizes: int) -> Queries:
    return Queries.of(pa.array([f"q{number}" for number, size in enumerate(sizes) for _ in range(size)]))


def value(grades: Any, scores: Any, metric: str) -> float:
    return float(query_values(np.array(grades), np.array(scores), queries(len(grades)), metric)[0])


def reciprocal(grades: Any, order: Any) -> float:
    return 1 / (1 + next(place for place, row in enumerate(order) if grades[row] > 0))


def precision(grades: Any, order: Any) -> float:
    hits = [grades[row] > 0 for row in order]
    return float(np.mean([sum(hits[: place + 1]) / (place + 1) for place, hit in enumerate(hits) if hit]))


@pytest.mark.parametrize("ties", [False, True])
def test_ndcg_is_that_of_scikit_learn(ties: bool) -> None:
    random = np.random.default_rng(0)
    for size in (*range(2, 14), 40):
        for _ in range(20):
            grades = random.integers(0, 4, size)
            scores = random.integers(0, 3, size).astype(float) if ties else random.normal(size=size)
            if np.ptp(grades) == 0:
                continue
            assert value(grades, scores, "ndcg@10") == pytest.approx(ndcg_score([grades], [scores], k=10), abs=1e-12)


def test_worked_out_by_hand() -> None:
    # Relevant documents are second and fifth.
    grades, scores = [0, 1, 0, 0, 2, 0], [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    assert value(grades, scores, "mrr") == pytest.approx(1 / 2)
    assert value(grades, scores, "map") == pytest.approx((1 / 2 + 2 / 5) / 2)
    dcg, ideal = 1 / np.log2(3) + 2 / np.log2(6), 2 + 1 / np.log2(3)
    assert value(grades, scores, "ndcg@10") == pytest.approx(dcg / ideal)
    # The eleventh place counts for MRR and MAP, not for nDCG@10.
    last = [0] * 10 + [1]
    assert [value(last, -np.arange(11.0), name) for name in RANKING] == pytest.approx([0, 1 / 11, 1 / 11])


def test_without_ties_map_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(1)
    for _ in range(50):
        grades, scores = random.permutation([1, 1, 1, 0, 0, 0, 0, 0, 0]), random.normal(size=9)
        assert value(grades, scores, "map") == pytest.approx(average_precision_score(grades, scores))


@pytest.mark.parametrize(("metric", "plain"), [("mrr", reciprocal), ("map", precision)])
def test_ties_have_the_mean_of_all_their_orders(metric: str, plain: Any) -> None:
    random = np.random.default_rng(2)
    for _ in range(12):
        grades, scores = random.integers(0, 2, 6), random.integers(0, 3, 6).astype(float)
        if np.ptp(grades) == 0:
            continue
        orders = [order for order in permutations(range(6)) if (np.diff(scores[list(order)]) <= 0).all()]
        expected = np.mean([plain(grades, order) for order in orders])
        assert value(grades, scores, metric) == pytest.approx(expected)


def test_queries_that_cannot_be_ranked_are_counted_and_left_out() -> None:
    grades = np.array([2, 0, 1, 0, 0, 1, 1, 3])
    of = queries(2, 1, 2, 2, 1)
    counts = {"all": 5, "ranked": 1, "one_document": 2, "no_relevant": 1, "one_grade": 1}
    assert of.counts(grades) == counts
    values = query_values(grades, np.zeros(8), of, "ndcg@10")
    assert np.isfinite(values).tolist() == [True, False, False, False, False]
    found = ranking_evaluation("pairs", grades, np.arange(8, dtype=np.float32)[:, None], GRADES, of)
    assert found["queries"] == counts and found["examples"] == 8
    assert list(found["metrics"]) == ["ndcg@10", "mrr", "map", "pearson", "spearman"]


def test_the_order_of_rows_and_queries_changes_nothing() -> None:
    random = np.random.default_rng(3)
    names = pa.array([f"q{number % 7}" for number in range(60)])
    grades, logits = random.integers(0, 3, 60), random.integers(0, 5, 60).astype(np.float32)[:, None]
    found = ranking_evaluation("pairs", grades, logits, GRADES, Queries.of(names))
    order = random.permutation(60)
    again = ranking_evaluation("pairs", grades[order], logits[order], GRADES, Queries.of(names.take(pa.array(order))))
    assert found["metrics"] == again["metrics"] and found["queries"] == again["queries"]


def test_resamples_draw_queries_with_all_of_their_documents() -> None:
    random = np.random.default_rng(4)
    of = queries(*([5] * 8))
    grades, scores = random.integers(0, 3, 40).astype(float), random.normal(size=40)
    times = random.integers(0, 3, (20, 8)).astype(float)
    rows = [
        np.concatenate([np.arange(5 * q, 5 * q + 5) for q in np.repeat(np.arange(8), t.astype(int))]) for t in times
    ]
    for metric in ("pearson", "spearman"):
        expected = [score(grades[row], scores[row][:, None], GRADES, [metric])[metric] for row in rows]
        assert OfQueries.over(grades, scores, metric, of).scores(times) == pytest.approx(expected)
        taken = OfQueries.over(grades, scores, metric, of).taken(np.arange(8)[::-1].copy())
        assert taken.scores(times[:, ::-1]) == pytest.approx(expected)
    values = query_values(grades, scores, of, "mrr")
    expected = 100 * (times @ values) / times.sum(axis=1)
    assert query_measure(grades, scores, of, "mrr").scores(times) == pytest.approx(expected)


def test_the_interval_is_that_of_a_mean_over_queries() -> None:
    random = np.random.default_rng(5)
    of, grades, scores = queries(*([4] * 200)), np.tile([1, 0, 0, 0], 200), random.normal(size=800)
    low, high = ranking_evaluation("pairs", grades, scores[:, None], GRADES, of)["intervals"]["mrr"]
    values = 100 * query_values(grades, scores, of, "mrr")
    half = 1.96 * values.std() / np.sqrt(200)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15 * half)
    assert paired.value(query_measure(grades, scores, of, "mrr"), 200) == pytest.approx(values.mean())


def test_two_classes_are_ranked_by_the_logits_of_the_positive_one() -> None:
    of, gold = queries(3, 3), np.array([1, 0, 0, 0, 0, 1])
    # Both are sure of every document: probabilities are 1 and tie, logits do not.
    logits = np.array([[0, 90], [0, 80], [0, 70], [0, 70], [0, 80], [0, 90]], dtype=np.float32)
    names = ("no", "yes")
    found = ranking_evaluation("pairs", gold, logits, Labels(names=names), of)
    assert found["metrics"]["mrr"] == 100 and found["ranked_by"] == "class yes"
    turned = ranking_evaluation("pairs", gold, logits, Labels(names=names, positive="no"), of)
    assert turned["metrics"]["mrr"] == 100 and turned["ranked_by"] == "class no"


def test_pairs_that_two_models_order_alike() -> None:
    # Of q0's six pairs one is turned round and one tied by the other model; q1 is turned round; q2 is one document.
    ours, theirs = np.array([4, 3, 2, 1, 5, 6, 7.0]), np.array([9, 8, 1, 1.5, 6, 5, 0])
    assert concordant_pairs(ours, theirs, queries(4, 2, 1)) == pytest.approx([5 / 6, 0, np.nan], nan_ok=True)
    theirs[1] = 9
    assert concordant_pairs(ours, theirs, queries(4, 2, 1)) == pytest.approx([4.5 / 6, 0, np.nan], nan_ok=True)
    agreement = rank_agreement(ours[:, None], theirs[:, None], GRADES, queries(4, 2, 1), "pairs")
    assert agreement == pytest.approx(100 * (4.5 / 6 + 0) / 2)
    # Documents that both models tie are ordered alike.
    assert concordant_pairs(np.ones(3), np.array([2, 2, 2]), queries(3))[0] == 1
    with pytest.raises(UserError, match="no query has two documents"):
        rank_agreement(ours[:, None], theirs[:, None], GRADES, queries(*[1] * 7), "pairs")


def test_without_ties_concordance_is_kendalls_tau() -> None:
    random = np.random.default_rng(6)
    for size in range(2, 20):
        ours, theirs = random.normal(size=(2, size))
        tau = kendalltau(ours, theirs).statistic
        assert concordant_pairs(ours, theirs, queries(size))[0] == pytest.approx((1 + tau) / 2)


def test_rank_agreement_sees_what_correlation_does_not() -> None:
    """Two scores far apart make the correlation of all pairs nearly 1, though every query's best two change places."""
    ours = np.tile([0.3, 0.2, -9.0], 50)
    theirs = np.tile([0.2, 0.3, -9.0], 50)
    assert np.corrcoef(ours, theirs)[0, 1] > 0.999
    found = rank_agreement(ours[:, None], theirs[:, None], GRADES, queries(*[3] * 50), "pairs")
    assert found == pytest.approx(200 / 3)
