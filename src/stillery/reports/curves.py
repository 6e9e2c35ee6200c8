"""Learning curves from the logs of runs: every loss term, and the scores of the dev split."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillery.pictures.theme import PALETTE
from stillery.reports.content import Chart

__all__ = ["Curve", "learning_curves", "read_curves"]

_FEWEST, _MOST = 8, 60
"""Points of a curve: as many as the page has room for, within these bounds."""

_ROOM = 12_000
"""Points of all curves of a page."""

_KEPT = 10_000
"""Points of a curve that are held while a log is read."""

_GROUPS = len(PALETTE)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One quantity of one run over its optimiser steps; `group` is what runs of one colour share, such as a method."""

    group: str
    run: str
    term: str
    points: Sequence[tuple[int, float]]


def read_curves(log: Path, *, group: str, run: str) -> list[Curve]:
    """Return the curves in a run's `log.jsonl`; a line that a killed process was writing is left out."""
    found: dict[str, _Points] = {}
    try:
        with log.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    event = json.loads(line)
                    step = int(event["step"])
                except (ValueError, KeyError, TypeError, RecursionError):
                    continue
                for name, value in _values(event):
                    if isinstance(value, (int, float)) and abs(value) < float("inf"):
                        found.setdefault(name, _Points()).add((step, float(value)))
    except OSError:
        return []
    return [Curve(group=group, run=run, term=term, points=points.all()) for term, points in found.items()]


class _Points:
    """The points of a curve: of a long one evenly spaced ones, and the last."""

    def __init__(self) -> None:
        self._points: list[tuple[int, float]] = []
        self._last: tuple[int, float] | None = None
        self._every, self._seen = 1, 0

    def add(self, point: tuple[int, float]) -> None:
        """Take the next point."""
        if self._seen % self._every == 0:
            self._points.append(point)
            if len(self._points) > _KEPT:
                del self._points[1::2]
                self._every *= 2
        self._seen, self._last = self._seen + 1, point

    def all(self) -> list[tuple[int, float]]:
        """Return the points that were kept."""
        if self._last is None or self._points[-1] is self._last:
            return self._points
        return [*self._points, self._last]


def _values(event: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the quantities of an event by the name of their chart."""
    if event.get("event") == "dev" and isinstance(event.get("metrics"), dict):
        first = next(iter(event["metrics"].items()), None)
        return [] if first is None else [(f"dev {first[0]}", first[1])]
    terms = event.get("terms")
    if event.get("event") != "train" or not isinstance(terms, dict):
        return []
    return [("loss", event.get("loss")), *((f"term: {name}", value) for name, value in terms.items())]


def learning_curves(curves: Sequence[Curve], *, task: str = "", share: int = 1) -> tuple[list[Chart], str]:
    """Return a chart for each quantity, and a sentence about what was left out; colours are by group, the best first.

    A page with several sets of curves gives each its `share` of the points that it has room for.
    """
    groups = list(dict.fromkeys(one.group for one in curves))
    said = ""
    if len(groups) > _GROUPS:
        said = f"Shown are the best {_GROUPS} of {len(groups)}."
        groups = groups[:_GROUPS]
    shown = [one for one in curves if one.group in groups and len(one.points) > 1]
    room = max(_FEWEST, min(_MOST, _ROOM // share // max(len(shown), 1)))
    terms = sorted({one.term for one in shown}, key=lambda term: (_order(term), term))
    return [
        Chart(group=task, spec=_chart(term, [one for one in shown if one.term == term], groups, room)) for term in terms
    ], said


def _order(term: str) -> int:
    return 0 if term.startswith("dev ") else 1 if term == "loss" else 2


def _chart(term: str, curves: Sequence[Curve], groups: Sequence[str], room: int) -> dict[str, Any]:
    rows = [
        {"group": one.group, "run": one.run, "step": step, "value": float(f"{value:.4g}")}
        for one in curves
        for step, value in _thinned(one.points, room)
    ]
    title = term.removeprefix("term: ")
    return {
        "description": f"{title} over optimiser steps, a line for each run.",
        "title": title,
        "width": "container",
        "height": 190,
        "data": {"values": rows},
        "params": [{"name": "picked", "select": {"type": "point", "fields": ["group"]}, "bind": "legend"}],
        "mark": {"type": "line", "strokeWidth": 1.6, "clip": True},
        "encoding": {
            "x": {"field": "step", "type": "quantitative", "title": "optimiser step", "axis": {"tickCount": 5}},
            "y": {"field": "value", "type": "quantitative", "title": None, "scale": {"zero": False}},
            "color": {
                "field": "group", "type": "nominal", "title": None, "scale": {"domain": list(groups)},
                "legend": {"orient": "bottom"},
            },
            "detail": {"field": "run", "type": "nominal"},
            "opacity": {"condition": {"param": "picked", "value": 0.85}, "value": 0.1},
            "tooltip": [
                {"field": "run"}, {"field": "step"}, {"field": "value", "title": title},
            ],
        },
    }  # fmt: skip


def _thinned(points: Sequence[tuple[int, float]], room: int) -> list[tuple[int, float]]:
    """Return evenly spaced points of a curve, always with the first and the last."""
    if len(points) <= room:
        return list(points)
    return [points[round(place * (len(points) - 1) / (room - 1))] for place in range(room)]
