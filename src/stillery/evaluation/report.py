"""The evaluation of a model as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from stillery.data.schema.labels import Labels
from stillery.evaluation.metrics import agreement, difference, interval, main_metric, score
from stillery.evaluation.per_class import absent, absent_note, per_class

__all__ = ["evaluation"]


def evaluation(
    task: str,
    gold: NDArray[Any],
    logits: NDArray[Any],
    labels: Labels,
    teacher_logits: NDArray[Any] | None = None,
    metrics: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The evaluation of a model as a JSON object, in percent with four decimals.

    Holds `task`, `examples`, `metrics` (name to number) and `intervals` (name to 95% [low, high]); for classes also
    `per_class` and, if some have no examples, `absent_classes` and `absent_note`; with a teacher also
    `teacher_metrics`, `agreement` and `difference` (the main metric, student minus teacher, and its paired interval).
    """
    values = score(gold, logits, labels, metrics)
    found: dict[str, Any] = {
        "task": task,
        "examples": len(gold),
        "metrics": _rounded(values),
        "intervals": {name: _pair(interval(gold, logits, labels, name)) for name in values},
    }
    if not labels.regression:
        found["per_class"] = per_class(gold, logits, labels)
        lacking = absent(gold, labels)
        if lacking:
            found["absent_classes"] = lacking
            found["absent_note"] = absent_note(lacking, several=labels.multi)
    if teacher_logits is not None:
        main = main_metric(labels, metrics)
        value, between = difference(gold, logits, teacher_logits, labels, main)
        found["teacher_metrics"] = _rounded(score(gold, teacher_logits, labels, metrics))
        found["agreement"] = round(agreement(logits, teacher_logits, labels), 4)
        found["difference"] = {"metric": main, "value": round(value, 4), "interval": _pair(between)}
    return found


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def _pair(between: tuple[float, float]) -> list[float]:
    return [round(between[0], 4), round(between[1], 4)]
