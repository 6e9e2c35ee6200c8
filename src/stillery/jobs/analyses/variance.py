"""`stillery analyse variance`: distribution of the scores of each method over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stillery.analyse.finding import Finding
from stillery.analyse.variance import FEWEST, SeedSpread, equal_spread, seed_spread
from stillery.jobs.analyses.finished_runs import FinishedRun, by_group, finished_runs
from stillery.jobs.analyses.settings import Request
from stillery.pictures.charts import whole

__all__ = ["finding", "run"]

_TITLE = "Scores over seeds"


def run(request: Request) -> Finding:
    """Compare the spread over seeds of the methods of finished runs, task by task."""
    runs = finished_runs(request.subjects, request.own.metric)
    return finding(by_group(runs), runs[0].metric)


def finding(groups: Mapping[str, Mapping[str, Sequence[FinishedRun]]], metric: str) -> Finding:
    """Return the reading of runs by task and method."""
    spreads = {
        task: {name: seed_spread([one.score for one in runs]) for name, runs in methods.items()}
        for task, methods in groups.items()
    }
    sentence = "; ".join(_said(task, of, len(spreads) > 1) for task, of in spreads.items())
    rows = [
        {"task": task, "method": name, "seed": one.seed, "score": one.score}
        for task, methods in groups.items()
        for name, runs in methods.items()
        for one in runs
    ]
    table = [
        {"task": task, "method": name, "seeds": str(len(one.scores)), "mean": f"{one.mean:.2f}",
         "deviation": "-" if one.deviation is None else f"{one.deviation:.2f}", "lowest": f"{min(one.scores):.2f}",
         "highest": f"{max(one.scores):.2f}"}
        for task, of in spreads.items()
        for name, one in of.items()
    ]  # fmt: skip
    data = {
        task: {
            name: {"seeds": [one.seed for one in groups[task][name]], "scores": of.scores, "mean": of.mean,
                   "deviation": of.deviation, "quartiles": of.quartiles}
            for name, of in found.items()
        }
        for task, found in spreads.items()
    }  # fmt: skip
    seeds = [len(runs) for methods in groups.values() for runs in methods.values()]
    about = f"{metric}; dots: seeds, box: quartiles" if max(seeds) >= FEWEST else f"{metric}; dots: seeds, bar: mean"
    return Finding(
        analysis="variance", title=_TITLE, sentence=f"{sentence[0].upper()}{sentence[1:]}.", data=data, table=table,
        spec=whole(_TITLE, about, _chart(rows, metric, boxes=max(seeds) >= FEWEST)), settings={"metric": metric},
    )  # fmt: skip


def _said(task: str, of: Mapping[str, SeedSpread], several: bool) -> str:
    where = f"on {task} " if several else ""
    known = {name: one for name, one in of.items() if one.deviation is not None}
    if not known:
        return f"{where}every method has one seed, so nothing is known of its spread"
    deviations = {name: one.deviation or 0.0 for name, one in known.items()}
    low, high = min(deviations, key=lambda name: deviations[name]), max(deviations, key=lambda name: deviations[name])
    said = f"{where}standard deviations over seeds are {deviations[low]:.2f} ({low}) to {deviations[high]:.2f} ({high})"
    if len(known) == 1:
        return f"{where}the standard deviation over seeds of {low} is {deviations[low]:.2f}"
    p = equal_spread({name: one.scores for name, one in known.items()})
    if p is None:
        fewest = min(len(one.scores) for one in known.values())
        return f"{said}; with {fewest} seeds that does not tell which method varies more"
    verdict = "differ" if p < 0.05 else "are not shown to differ"
    return f"{said}; the spreads {verdict} (Brown and Forsythe, p = {p:.2g})"


def _chart(rows: Sequence[Mapping[str, Any]], metric: str, *, boxes: bool) -> dict[str, Any]:
    methods = list(dict.fromkeys(row["method"] for row in rows))
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    group = {"field": "method", "type": "nominal", "sort": methods, "title": None, "axis": {"labelLimit": 220}}
    score = {"field": "score", "type": "quantitative", "title": metric, "scale": {"zero": False}}
    box = (
        {"mark": {"type": "boxplot", "extent": "min-max", "size": 16, "color": "#56B4E9", "opacity": 0.55},
         "encoding": {"x": score, "y": group}}
        if boxes
        else {"mark": {"type": "tick", "thickness": 3, "size": 20, "color": "#D55E00"},
              "encoding": {"x": {**score, "aggregate": "mean"}, "y": group}}
    )  # fmt: skip
    dots = {"mark": {"type": "point", "filled": True, "size": 45, "color": "#0072B2", "opacity": 0.85},
            "encoding": {"x": score, "y": group}}  # fmt: skip
    spec = {"width": 360, "height": {"step": 32}, "layer": [box, dots]}
    if len(tasks) == 1:
        return {"data": {"values": list(rows)}, **spec}
    return {
        "data": {"values": list(rows)}, "spec": spec, "columns": 1, "resolve": {"scale": {"x": "independent"}},
        "facet": {"field": "task", "type": "nominal", "sort": tasks,
                  "header": {"title": None, "labelAnchor": "start", "labelFontWeight": 600}},
    }  # fmt: skip
