"""Metrics of predictions in percent, with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from stillery.data.schema.labels import Labels
from stillery.errors import UserError, nearest
from stillery.evaluation import paired
from stillery.evaluation.bootstrap import bounds, replicates
from stillery.evaluation.correlation import pearson, spearman
from stillery.evaluation.measures import measured
from stillery.evaluation.multi_label_metrics import SET_METRICS, score_sets
from stillery.evaluation.ranking_metrics import RANKING

__all__ = [
    "agreement",
    "difference",
    "interval",
    "main_metric",
    "majority_collapse",
    "metric_names",
    "predicted",
    "score",
]

Measure = Callable[[NDArray[Any], NDArray[Any]], float]

CLASSIFICATION: Mapping[str, Measure] = {
    "accuracy": lambda gold, guess: float(accuracy_score(gold, guess)),
    "f1": lambda gold, guess: float(f1_score(gold, guess, pos_label=1, zero_division=0)),
    "f1_macro": lambda gold, guess: float(f1_score(gold, guess, average="macro", zero_division=0)),
    "matthews": lambda gold, guess: float(matthews_corrcoef(gold, guess)),
}
REGRESSION: Mapping[str, Measure] = {"pearson": pearson, "spearman": spearman}


def score(
    gold: NDArray[Any], logits: NDArray[Any], labels: Labels, metrics: Sequence[str] | None = None
) -> dict[str, float]:
    """Compute metrics in percent; correlations and Matthews are multiplied by 100.

    Args:
        gold: class indices or values `[n]`, or 0 and 1 for each of several labels `[n, labels]`.
        logits: the model's outputs `[n, classes]`, or `[n, 1]` for regression.
        labels: the labels of the task: their kind and their names.
        metrics: for classes accuracy, f1 (two classes; of `labels.positive`, else of class 1), f1_macro and matthews,
            by default accuracy and f1_macro; for regression pearson and spearman, by default both; for several labels
            f1_micro, f1_macro and accuracy (all labels of an example correct), by default all three.
    """
    guess = predicted(logits, labels)
    _check_sizes(gold, guess)
    if labels.multi:
        return {name: 100 * score_sets(gold, guess, name) for name in metric_names(labels, metrics)}
    gold, guess = _positive_as_one(gold, labels), _positive_as_one(guess, labels)
    measures = REGRESSION if labels.regression else CLASSIFICATION
    return {name: 100 * measures[name](gold, guess) for name in metric_names(labels, metrics)}


def main_metric(labels: Labels, metrics: Sequence[str] | None = None) -> str:
    """The metric that models are compared and selected by: the first one."""
    return metric_names(labels, metrics)[0]


def interval(
    gold: NDArray[Any],
    logits: NDArray[Any],
    labels: Labels,
    metric: str,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """The confidence interval of a metric in percent: Wilson's for accuracy, else a percentile bootstrap."""
    guess = predicted(logits, labels)
    _check_sizes(gold, guess)
    metric_names(labels, [metric])
    if metric == "accuracy":
        right = int((gold == guess).reshape(len(gold), -1).all(axis=1).sum())
        return paired.wilson(right, len(gold), level)
    gold, guess = _positive_as_one(gold, labels), _positive_as_one(guess, labels)
    return bounds(replicates(gold, [guess], metric, draws=draws, seed=seed)[:, 0], level)


def difference(
    gold: NDArray[Any],
    logits: NDArray[Any],
    teacher_logits: NDArray[Any],
    labels: Labels,
    metric: str,
    draws: int = paired.DRAWS,
    seed: int = 0,
) -> tuple[float, tuple[float, float]]:
    """The difference student minus teacher in percent, and its 95% interval by a paired bootstrap over examples."""
    metric_names(labels, [metric])
    right = _positive_as_one(gold, labels)
    guesses = [_positive_as_one(predicted(one, labels), labels) for one in (logits, teacher_logits)]
    for guess in guesses:
        _check_sizes(gold, guess)
    ours, theirs = (measured(right, guess, metric) for guess in guesses)
    return paired.difference(ours, theirs, len(gold), draws=draws, seed=seed)


def agreement(logits: NDArray[Any], teacher_logits: NDArray[Any], labels: Labels) -> float:
    """The percentage of predictions on which student and teacher agree: classes, or each of several labels.

    For regression it is 100 times their Pearson correlation.
    """
    student, teacher = predicted(logits, labels), predicted(teacher_logits, labels)
    _check_sizes(teacher, student)
    return 100 * (pearson(student, teacher) if labels.regression else float((student == teacher).mean()))


def majority_collapse(logits: NDArray[Any], labels: Labels) -> bool:
    """Return whether the model predicts the same class (or the same labels, or the same value) for every example."""
    guess = predicted(logits, labels)
    return len(guess) > 0 and bool((guess == guess[0]).all())


def predicted(logits: NDArray[Any], labels: Labels) -> NDArray[Any]:
    """Predictions from logits: the class of each row `[n, classes]`, or the value of each row `[n, 1]`.

    For several labels it is 1 where the probability is above one half, else 0, `[n, labels]`.
    """
    width = 1 if labels.regression else labels.count
    if logits.ndim != 2 or logits.shape[1] != width:
        raise UserError(f"the model gives outputs of shape {list(logits.shape)}, the task needs {width} per example")
    # argmax of a row with NaN is a valid class, so a broken model would get a score.
    broken = np.flatnonzero(~np.isfinite(logits).all(axis=1))
    if len(broken):
        raise UserError(f"the model's outputs are not finite for {len(broken)} of {len(logits)} examples")
    if labels.multi:
        return (logits > 0).astype(np.int64)
    found: NDArray[Any] = logits[:, 0] if labels.regression else logits.argmax(axis=1)
    return found


def _positive_as_one(classes: NDArray[Any], labels: Labels) -> NDArray[Any]:
    """Renumber two classes so that the positive one is 1, which only matters for f1."""
    swapped = labels.kind == "classes" and labels.count == 2 and labels.positive == labels.names[0]
    return 1 - classes if swapped else classes


def _check_sizes(gold: NDArray[Any], guess: NDArray[Any]) -> None:
    if len(gold) != len(guess):
        raise UserError(f"{len(guess)} predictions cannot be compared with {len(gold)} labels")
    if len(gold) == 0:
        raise UserError("there are no examples to evaluate on")


def metric_names(labels: Labels, metrics: Sequence[str] | None) -> list[str]:
    """The requested metrics, or the defaults for this kind of labels; raise UserError for one that does not apply."""
    known: Sequence[str] = {"score": list(REGRESSION), "labels": list(SET_METRICS)}.get(
        labels.kind, list(CLASSIFICATION)
    )
    if metrics is None:
        return ["accuracy", "f1_macro"] if labels.kind == "classes" else list(known)
    if not metrics:
        raise UserError("no metric is given")
    for name in metrics:
        if name in known:
            continue
        if name in (*REGRESSION, *CLASSIFICATION, *SET_METRICS):
            task = {"score": "regression", "labels": "several labels"}.get(labels.kind, "classification")
            raise UserError(f"metric {name!r} is not defined for {task}; known: {', '.join(sorted(known))}")
        if name in RANKING:
            raise UserError(f"metric {name!r} ranks the documents of a query: name the column of queries with --query")
        raise UserError(f"unknown metric {name!r}; {nearest(name, known)}")
    if "f1" in metrics and labels.count != 2:
        raise UserError(f"metric 'f1' needs two classes and there are {labels.count}; use 'f1_macro'")
    return list(metrics)
