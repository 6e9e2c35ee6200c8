"""The average over tasks, computed as each paper computes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stillery.errors import UserError, nearest

__all__ = ["MISMATCHED", "STYLES", "Average", "Column", "Style", "average"]

MISMATCHED = "mnli-mm"
"""The name of scores on MNLI's mismatched split; those on the matched split are `mnli`."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a results table: the mean over its sets of examples of the mean over its metrics."""

    name: str
    sets: tuple[str, ...]
    metrics: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Style:
    """The columns whose unweighted mean a paper reports as its average, and notes on the evidence for them."""

    about: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, kw_only=True)
class Average:
    """An average over tasks (None if no column has scores), its columns, and the sets of examples without scores."""

    style: str
    value: float | None
    columns: Mapping[str, float]
    missing: tuple[str, ...]


def _column(task: str, *metrics: str) -> Column:
    return Column(name=task, sets=(task,), metrics=metrics)


def _columns(mnli: tuple[Column, ...], **others: str) -> tuple[Column, ...]:
    """The columns by task; `+` joins metrics that are averaged into one column."""
    return (*(_column(task, *metrics.split("+")) for task, metrics in others.items()), *mnli)


_BOTH_IN_ONE = (Column(name="mnli", sets=("mnli", MISMATCHED), metrics=("accuracy",)),)
_TWO_COLUMNS = (_column("mnli", "accuracy"), _column(MISMATCHED, "accuracy"))
_OFFICIAL = {
    "cola": "matthews",
    "sst2": "accuracy",
    "mrpc": "f1+accuracy",
    "stsb": "pearson+spearman",
    "qqp": "f1+accuracy",
    "qnli": "accuracy",
    "rte": "accuracy",
}

STYLES: dict[str, Style] = {
    "glue": Style(
        about="GLUE's own: each task counts once; two metrics, and MNLI's two parts, are averaged inside their task. "
        "Table 3 of RAIL-KD is averaged so.",
        columns=_columns(_BOTH_IN_ONE, **_OFFICIAL),
    ),
    "rail-kd": Style(
        about="RAIL-KD, tables 2 and 4: GLUE's metrics; the printed averages come out when MNLI's two parts count as "
        "two columns (not stated in the paper; its table 3 counts MNLI once).",
        columns=_columns(_TWO_COLUMNS, **_OFFICIAL),
    ),
    "ild-rtc": Style(
        about="ILD-RTC: six tasks, MNLI-m and MNLI-mm as two columns, as all its printed averages confirm; F1 for "
        "MRPC and QQP (inferred from the size of the numbers: the paper only says accuracy).",
        columns=_columns(_TWO_COLUMNS, sst2="accuracy", mrpc="f1", qqp="f1", qnli="accuracy", rte="accuracy"),
    ),
    "cr-ild": Style(
        about="CR-ILD, appendix B: accuracy for MNLI, SST-2, QNLI, QQP and RTE, Matthews for CoLA, F1 for MRPC, "
        "Spearman for STS-B. MNLI is one column, taken to be the matched part (not stated).",
        columns=_columns(
            (_column("mnli", "accuracy"),),
            cola="matthews",
            sst2="accuracy",
            qnli="accuracy",
            mrpc="f1",
            qqp="accuracy",
            rte="accuracy",
            stsb="spearman",
        ),
    ),
    "out-of-domain": Style(
        about="RAIL-KD, table 6: the unweighted mean of SciTail, PAWS and IMDb (accuracy assumed: the paper names no "
        "metric).",
        columns=_columns((), scitail="accuracy", paws="accuracy", imdb="accuracy"),
    ),
}
"""The ways of averaging, by name."""


def average(scores: Mapping[str, Mapping[str, float]], style: str = "glue") -> Average:
    """The average of scores (set of examples to metric to value) over the columns of a style.

    Sets without scores are listed in `missing`. A column averages its sets with scores, and is omitted without any.

    >>> average({"sst2": {"accuracy": 90.0}, "mrpc": {"f1": 88.0, "accuracy": 84.0}}).value
    88.0
    """
    if style not in STYLES:
        raise UserError(f"no style {style!r} of averages; {nearest(style, STYLES)}")
    columns: dict[str, float] = {}
    missing: list[str] = []
    for column in STYLES[style].columns:
        missing += [one for one in column.sets if one not in scores]
        values = [_score(scores[one], column, one) for one in column.sets if one in scores]
        if values:
            columns[column.name] = sum(values) / len(values)
    value = sum(columns.values()) / len(columns) if columns else None
    return Average(style=style, value=value, columns=columns, missing=tuple(missing))


def _score(values: Mapping[str, float], column: Column, name: str) -> float:
    for metric in column.metrics:
        if metric not in values:
            raise UserError(f"{name}: no {metric} among its metrics ({', '.join(values)}); score it again with --task")
    return sum(values[metric] for metric in column.metrics) / len(column.metrics)
