"""The picture of `stillery analyse supplementary`: a matrix of scores, conditions against gain, and loss curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stillery.jobs.analyses.after_layers import OWN, Texts, source_of
from stillery.jobs.analyses.finished_runs import FinishedRun
from stillery.pictures.charts import Scale, heat_map, line_chart, stacked

__all__ = ["picture"]

Place = tuple[str, str]
Spec = dict[str, Any]


def picture(
    runs: Sequence[FinishedRun],
    *,
    means: Mapping[Place, float],
    gains: Mapping[Place, float],
    texts: Mapping[str, Texts | None],
    probes: Mapping[Place, float],
    losses: Mapping[str, Sequence[tuple[int, float]]],
) -> Spec:
    """Return the charts for which there is data, one above the other."""
    return stacked(_matrix(means, gains), *_conditions(gains, texts, probes), *_curves(runs, losses))


def _matrix(means: Mapping[Place, float], gains: Mapping[Place, float]) -> Spec:
    """Return the scores, coloured by the gain where there is one: scores of different tasks have no common scale."""
    sources = sorted({source for source, _ in means}, key=lambda source: (source != OWN, source))
    tasks = list(dict.fromkeys(task for _, task in means))
    cells = [
        {"x": task, "y": source, "score": means[source, task],
         "value": gains.get((source, task), 0.0) if gains else means[source, task]}
        for source in sources
        for task in tasks
        if (source, task) in means
    ]  # fmt: skip
    if gains:
        most = max(max(abs(gain) for gain in gains.values()), 0.1)
        scale = Scale(title="gain", low=-most, high=most, signed=True, format=".1f")
    else:
        low = min(means.values())
        scale = Scale(title="score", low=low, high=max(*means.values(), low + 1e-6), format=".1f")
    return {"title": "Score"} | heat_map(cells, x="task", y="texts", scale=scale, number="score")


def _conditions(
    gains: Mapping[Place, float], texts: Mapping[str, Texts | None], probes: Mapping[Place, float]
) -> list[Spec]:
    """Return size, length and probe against the gain; the task's own texts have a gain of 0."""
    known = {place: one for place in gains if (one := texts.get(place[0])) is not None}
    own = {place: 0.0 for place in probes if place[0] == OWN and any(task == place[1] for _, task in gains)}
    charts = []
    for title, values in (
        ("number of texts", {place: float(one.size) for place, one in known.items()}),
        ("tokens per text", {place: one.length for place, one in known.items()}),
        ("probe after that stage (%)", probes),
    ):
        rows = [
            {"x": values[place], "y": gain, "task": place[1], "texts": place[0]}
            for place, gain in {**gains, **own}.items()
            if place in values
        ]
        if rows:
            charts.append(_scatter(rows, title))
    if not charts:
        return []
    return [{"title": "Gain over the task's own texts", "concat": charts, "columns": 2, "spacing": 14}]


def _scatter(rows: Sequence[Mapping[str, Any]], title: str) -> Spec:
    legend = {"orient": "bottom", "columns": 2, "labelLimit": 200}
    return {
        "data": {"values": list(rows)}, "width": 150, "height": 150,
        "mark": {"type": "point", "size": 90, "opacity": 0.9},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "title": title, "scale": {"zero": False, "padding": 10},
                  "axis": {"tickCount": 3, "format": "~s"}},
            "y": {"field": "y", "type": "quantitative", "title": "gain", "scale": {"padding": 10}},
            "color": {"field": "task", "type": "nominal", "title": "task", "legend": legend},
            "shape": {"field": "texts", "type": "nominal", "title": "texts", "legend": legend},
        },
    }  # fmt: skip


def _curves(runs: Sequence[FinishedRun], losses: Mapping[str, Sequence[tuple[int, float]]]) -> list[Spec]:
    tasks = {one.task for one in runs}
    curves: dict[tuple[str, int], list[float]] = {}
    for one in runs:
        for step, loss in losses.get(str(one.folder), ()):
            name = source_of(one) if len(tasks) == 1 else f"{source_of(one)} for {one.task}"
            curves.setdefault((name, step), []).append(loss)
    if not curves:
        return []
    rows = [
        {"x": step, "y": float(np.mean(some)), "low": min(some), "high": max(some), "series": name}
        for (name, step), some in sorted(curves.items())
    ]
    chart = line_chart(rows, x="step of the last stage", y="training loss", series="", band=True, points=False)
    return [{"title": "Loss after the hidden-state stage"} | chart]
