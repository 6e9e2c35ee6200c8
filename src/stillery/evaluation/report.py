"""The evaluation of a model as JSON and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from stillery.data.schema.labels import Labels
from stillery.evaluation.metrics import agreement, difference, interval, main_metric, score
from stillery.evaluation.per_class import absent, absent_note, per_class

__all__ = ["evaluation", "table"]

DASH = "-"


def evaluation(
    task: str,
    gold: NDArray[Any],
    logits: NDArray[Any],
    labels: Labels,
    teacher_logits: NDArray[Any] | None = None,
    metrics: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The evaluation of a model as a JSON object, in percent with four decimals.

    Holds `task`, `examples`, `metrics` (name to number) and `intervals` (name to 95% [low, high]); of classes also
    `per_class` and, where the examples lack some, `absent_classes` and what that means; with a teacher also
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


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of models, one row each; a value that is missing or None is shown as a dash.

    Row keys: `name`, `layers`, `parameters`, `megabytes`, `metric`, `value`, `interval`, `agreement`, `latency_ms`,
    `train_seconds`.
    """
    metrics = {row["metric"] for row in rows if row.get("metric")}
    shared = metrics.pop() if len(metrics) == 1 else None
    # Fits into 80 columns: only names are folded, since a number that is cut would be a wrong number.
    found = Table(
        box=SIMPLE_HEAD,
        padding=0,
        show_edge=False,
        caption="Intervals are 95%. Latency: median per sentence, batch 1, one thread.",
        caption_justify="left",
    )
    found.add_column("model", overflow="fold", min_width=8)
    measured = f"{shared or 'score'}\n(interval)"
    for head in ("layers", "param-\neters", "size on\ndisk", measured, "teacher\nagreement", "latency", "training"):
        found.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        found.add_row(
            Text(str(row.get("name") or DASH)),
            _cell(row, "layers", "{}"),
            _cell(row, "parameters", "{:.1f}M", per=1e6),
            _cell(row, "megabytes", "{:.1f} MB"),
            _measured(row, named=shared is None),
            _cell(row, "agreement", "{:.1f}%"),
            _cell(row, "latency_ms", "{:.1f} ms"),
            _cell(row, "train_seconds", "{:.0f} s"),
        )
    return found


def _measured(row: Mapping[str, Any], *, named: bool) -> str:
    value = _cell(row, "value", "{:.1f}")
    between = row.get("interval")
    around = "" if between is None else f" ({between[0]:.1f}-{between[1]:.1f})"
    name = f"{row['metric']} " if named and row.get("metric") else ""
    return DASH if value == DASH else f"{name}{value}{around}"


def _cell(row: Mapping[str, Any], key: str, shape: str, per: float | None = None) -> str:
    value = row.get(key)
    return DASH if value is None else shape.format(value if per is None else value / per)


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def _pair(between: tuple[float, float]) -> list[float]:
    return [round(between[0], 4), round(between[1], 4)]
