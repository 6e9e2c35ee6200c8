"""The evaluation of a model that ranks the documents of queries, as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.data.schema.labels import Labels
from stillery.errors import UserError
from stillery.evaluation import paired
from stillery.evaluation.measures import Measure
from stillery.evaluation.metrics import agreement, metric_names, predicted
from stillery.evaluation.per_class import per_class
from stillery.evaluation.ranking_metrics import RANKING, OfQueries, Queries, concordant_pairs, query_measure

__all__ = [
    "check_ranking",
    "grades",
    "rank_agreement",
    "ranking_evaluation",
    "ranking_names",
    "ranking_scores",
    "relevance_scores",
]


def check_ranking(gold: NDArray[Any], labels: Labels, queries: Queries, where: str) -> None:
    """Raise UserError for labels that are no grades of relevance, and where no query can be ranked."""
    if labels.multi or (not labels.regression and labels.count != 2):
        raise UserError(
            f"--query: documents are ranked by a score or by one of two classes, and there are {labels.count} "
            f"{'labels' if labels.multi else 'classes'}; use numbers and --regression, or leave --query out"
        )
    if labels.regression and len(gold) and gold.min() < 0:
        raise UserError(f"{where}: a label is {gold.min():g}, and grades of relevance are 0 or above; correct the data")
    if not queries.ranked(grades(gold, labels)).any():
        raise UserError(
            f"{where}: in none of the {len(queries)} queries do documents differ in their label, so that there is "
            "nothing to rank; is --query the right column?"
        )


def ranking_names(labels: Labels, metrics: Sequence[str] | None) -> list[str]:
    """The requested metrics, or by default those of rankings and the usual ones of the labels."""
    if metrics is None:
        return [*RANKING, *metric_names(labels, None)]
    others = [name for name in metrics if name not in RANKING]
    if others:
        metric_names(labels, others)
    return list(metrics)


def relevance_scores(logits: NDArray[Any], labels: Labels) -> NDArray[np.float32]:
    """What documents are ranked by `[n]`: the score, or of two classes the logit of the positive one minus the other's.

    The positive class is `labels.positive`, else the second.
    """
    found = predicted(logits, labels)
    if labels.regression:
        return found.astype(np.float32)
    positive = _positive(labels)
    margin: NDArray[np.float32] = (logits[:, positive] - logits[:, 1 - positive]).astype(np.float32)
    return margin


def rank_agreement(logits: NDArray[Any], others: NDArray[Any], labels: Labels, queries: Queries, where: str) -> float:
    """The percentage of a query's pairs of documents that two models order alike, the mean over queries.

    Raises UserError where no query has two documents.
    """
    shares = concordant_pairs(relevance_scores(logits, labels), relevance_scores(others, labels), queries)
    several = np.bincount(queries.of_example, minlength=len(queries)) > 1
    if not several.any():
        raise UserError(f"{where}: no query has two documents, so that there is no order to compare; leave --query out")
    return 100 * float(shares[several].mean())


def ranking_scores(
    gold: NDArray[Any], logits: NDArray[Any], labels: Labels, queries: Queries, metrics: Sequence[str] | None = None
) -> dict[str, float]:
    """Compute metrics in percent."""
    found = _measures(gold, logits, labels, queries, metrics)
    return {name: paired.value(measure, len(queries)) for name, measure in found.items()}


def ranking_evaluation(
    task: str,
    gold: NDArray[Any],
    logits: NDArray[Any],
    labels: Labels,
    queries: Queries,
    teacher_logits: NDArray[Any] | None = None,
    metrics: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The evaluation of a model as a JSON object, as `stillery.evaluation.report.evaluation` makes it.

    All intervals resample queries, each with all of its documents. `queries` counts those that are ranked, and those
    that are left out, by the reason; `ranked_by` says what of the model's output they are ranked by.
    """
    ours, size = _measures(gold, logits, labels, queries, metrics), len(queries)
    found: dict[str, Any] = {
        "task": task,
        "examples": len(gold),
        "queries": queries.counts(grades(gold, labels)),
        "ranked_by": "score" if labels.regression else f"class {labels.names[_positive(labels)]}",
        "metrics": _rounded({name: paired.value(measure, size) for name, measure in ours.items()}),
        "intervals": {name: _pair(paired.interval(measure, size)) for name, measure in ours.items()},
    }
    if not labels.regression:
        found["per_class"] = per_class(gold, logits, labels)
    if teacher_logits is not None:
        theirs = _measures(gold, teacher_logits, labels, queries, metrics)
        main = next(iter(ours))
        value, between = paired.difference(ours[main], theirs[main], size)
        found["teacher_metrics"] = _rounded({name: paired.value(measure, size) for name, measure in theirs.items()})
        found["agreement"] = round(agreement(logits, teacher_logits, labels), 4)
        found["difference"] = {"metric": main, "value": round(value, 4), "interval": _pair(between)}
    return found


def grades(gold: NDArray[Any], labels: Labels) -> NDArray[Any]:
    """The relevance of documents from their labels: the score, or 1 for the positive class."""
    return gold if labels.regression else (gold == _positive(labels)).astype(np.int64)


def _measures(
    gold: NDArray[Any], logits: NDArray[Any], labels: Labels, queries: Queries, metrics: Sequence[str] | None
) -> dict[str, Measure]:
    """Each metric as a measure whose resamples count queries."""
    guess, scores, relevance = predicted(logits, labels), relevance_scores(logits, labels), grades(gold, labels)
    # f1 is of class 1.
    swapped = not labels.regression and _positive(labels) == 0
    right, guess = (1 - gold, 1 - guess) if swapped else (gold, guess)
    return {
        name: query_measure(relevance, scores, queries, name)
        if name in RANKING
        else OfQueries.over(right, guess, name, queries)
        for name in ranking_names(labels, metrics)
    }


def _positive(labels: Labels) -> int:
    return 1 if labels.positive is None else labels.names.index(labels.positive)


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def _pair(between: tuple[float, float]) -> list[float]:
    return [round(between[0], 4), round(between[1], 4)]
