"""Results of studies, made up in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stillery.evaluation.measures import class_measure
from stillery.study.answers import answers
from stillery.study.results import Cell, Results, Row, Task


def scored(scores: Mapping[str, Mapping[str, Sequence[float]]], *, rows: Sequence[Row] = (), **options) -> Results:
    """Results without predictions: task to row to scores by seed 0, 1, ...; NaN is a failed run, None one not run."""
    cells = {}
    for task, by_row in scores.items():
        for row, values in by_row.items():
            for seed, value in enumerate(values):
                if value is not None:
                    failed = np.isnan(value)
                    cells[task, row, seed] = Cell(failure="the loss is NaN") if failed else Cell(score=float(value))
    names = dict.fromkeys(row for by_row in scores.values() for row in by_row)
    given = {row.name: row for row in rows}
    seeds = max(len(values) for by_row in scores.values() for values in by_row.values())
    return Results(
        tasks=tuple(Task(name=task, metric="accuracy") for task in scores),
        rows=tuple(given.get(name, Row(name=name)) for name in names),
        seeds=tuple(range(seeds)),
        cells=cells,
        **options,
    )


def predicted(right: Mapping[str, np.ndarray], metric: str = "accuracy", gold: np.ndarray | None = None) -> Results:
    """Results of one task with predictions: row to whether each example is right `[seeds, examples]`."""
    cells = {}
    for row, values in right.items():
        labels = np.arange(values.shape[1]) % 2 if gold is None else gold
        for seed, one in enumerate(values):
            found = answers(range(len(one)), labels, class_measure(labels, np.where(one, labels, 1 - labels), metric))
            cells["task", row, seed] = Cell(score=found.score, answers=found)
    seeds = max(len(values) for values in right.values())
    return Results(
        tasks=(Task(name="task", metric=metric),),
        rows=tuple(Row(name=name) for name in right),
        seeds=tuple(range(seeds)),
        cells=cells,
    )
