"""The two halves of dev, where one chooses and the other is reported: scores from the predictions of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stillery.evaluation.measures import Measure
from stillery.evaluation.paired import difference, interval, value
from stillery.evaluation.recorded import measures, read_predictions
from stillery.study.shrink.measure import in_first_half

__all__ = ["Halves", "halves"]

_ROUNDED = 0.01


@dataclass(frozen=True, kw_only=True)
class Halves:
    """A run's score on the half of dev that chooses, and on the other one that and its teacher's, with intervals."""

    first: float
    second: float
    interval: tuple[float, float]
    teacher: float
    difference: float
    between: tuple[float, float]
    examples: int


def halves(run: Path, metrics: Mapping[str, Any]) -> Halves:
    """The scores of a finished run; raises ValueError where its predictions are not those of its metrics."""
    metric, score = next(iter(metrics["metrics"].items()))
    recorded = read_predictions(run / "predictions.parquet")
    both = _both(run, recorded, metric, float(score))
    mask = in_first_half(recorded.units.to_pylist())
    first, second = (np.flatnonzero(some) for some in (mask, ~mask))
    ours, theirs = (one.taken(second) for one in both)
    apart, between = difference(ours, theirs, len(second))
    return Halves(
        first=value(both[0].taken(first), len(first)), second=value(ours, len(second)),
        interval=interval(ours, len(second)), teacher=value(theirs, len(second)), difference=apart, between=between,
        examples=len(second),
    )  # fmt: skip


def _both(run: Path, recorded: Any, metric: str, score: float) -> list[Measure]:
    """The metric of the student and of its teacher, as the run worked it out."""
    for both in measures([recorded, recorded.of_teacher()], metric, _labels(run)):
        if abs(value(both[0], len(recorded.units)) - score) <= _ROUNDED:
            return both
    raise ValueError(f"{run}: predictions.parquet does not give the {metric} of metrics.json")


def _labels(run: Path) -> list[str]:
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    named = {int(number): name for number, name in (config.get("id2label") or {}).items()}
    return [named[number] for number in sorted(named)]
