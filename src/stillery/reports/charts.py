"""The charts of a report as Vega-Lite specifications, each as wide as the place it is put in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stillery.pictures.theme import PALETTE
from stillery.reports.content import Apart, Point

__all__ = ["MOST", "costs", "differences", "front", "score_against", "seeds_and_means", "spreads"]

Spec = dict[str, Any]
Row = dict[str, Any]

MOST = 40
"""The largest number of rows that a chart shows: more cannot be read."""

_BLUE, _ORANGE, _GREY = PALETTE[0], PALETTE[1], "#8a8a8a"
_ROW_HEIGHT = 26
_KINDS = ["teacher", "on the front", "beaten at its cost"]


def front(points: Sequence[Point], cost: str) -> list[Point]:
    """Return the Pareto front: the models that no other one beats in score at the same cost or a lower one.

    >>> rows = (("a", 9, 3), ("b", 8, 3), ("c", 7, 1))
    >>> made = [Point(name=name, task="t", score=score, costs={"mb": cost}) for name, score, cost in rows]
    >>> [one.name for one in front(made, "mb")]
    ['c', 'a']
    """
    known = [(cost_of, -one.score, place) for place, one in enumerate(points) if (cost_of := one.costs.get(cost))]
    found: list[Point] = []
    for _, _, place in sorted(known):
        if not found or points[place].score > found[-1].score:
            found.append(points[place])
    return found


def score_against(points: Sequence[Point], cost: str, title: str, metric: str) -> Spec | None:
    """Score against a cost, with the Pareto front as a stepped line; None where fewer than two costs are known."""
    best = front(points, cost)
    known = [one for one in points if one.costs.get(cost)]
    if len(known) < 2:
        return None
    rows = _cost_rows(known, best, cost)
    x = {"field": "cost", "type": "quantitative", "title": title, "scale": {"zero": False, "padding": 24},
         "axis": {"tickCount": 6}}  # fmt: skip
    y = {"field": "score", "type": "quantitative", "title": metric, "scale": {"zero": False, "padding": 14}}
    colour = {"field": "what", "type": "nominal", "title": None, "legend": {"orient": "top", "symbolOpacity": 1},
              "scale": {"domain": _KINDS, "range": [_ORANGE, _BLUE, _GREY]}}  # fmt: skip
    shape = {**colour, "scale": {"domain": _KINDS, "range": ["diamond", "circle", "square"]}}
    line = [{"cost": _digits(one.costs[cost]), "score": _digits(one.score)} for one in best]
    return {
        "description": f"{metric} against {title}. On the Pareto front: {', '.join(one.name for one in best)}.",
        "width": "container",
        "height": 280,
        "data": {"values": rows},
        "layer": [
            {
                "data": {"values": line},
                "mark": {"type": "line", "interpolate": "step-after", "strokeDash": [4, 3], "strokeWidth": 1.5,
                         "color": _BLUE, "opacity": 0.7},
                "encoding": {"x": x, "y": y},
            },
            *_where_known(
                rows,
                {
                    "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.55},
                    "encoding": {"x": x, "y": {**y, "field": "from"}, "y2": {"field": "to"}, "color": colour},
                },
            ),
            {
                "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": colour, "shape": shape,
                             "tooltip": _tips(("cost", title), metric=metric)},
            },
            *_front_names(rows, x, y),
        ],
    }  # fmt: skip


def _cost_rows(known: Sequence[Point], best: Sequence[Point], cost: str) -> list[Row]:
    """Return a row for each model: what it is, and where its name stands if it is on the front."""
    dearest = max(one.costs[cost] or 0.0 for one in known)
    rows = [
        _row(one)
        | {
            "cost": _digits(one.costs[cost]),
            "what": _what(one, best),
            "label": one.name if one in best else "",
            "last": one.costs[cost] == dearest,
            "above": best.index(one) % 2 == 0 if one in best else True,
        }
        for one in known
    ]
    # What is drawn last lies on top.
    return sorted(rows, key=lambda row: row["what"] == _KINDS[1])


def _front_names(rows: Sequence[Row], x: Spec, y: Spec) -> list[Spec]:
    """Return the names on the front: of the last one on its left, where there is room; neighbours above and below."""
    return [
        {
            "data": {"values": some},
            "mark": {"type": "text", "align": "right" if last else "left", "dx": -9 if last else 9,
                     "dy": -10 if above else 12, "limit": 150, "fontSize": 11},
            "encoding": {"x": x, "y": y, "text": {"field": "label"}},
        }
        for last in (False, True)
        for above in (False, True)
        if (some := [row for row in rows if row["label"] and (row["last"], row["above"]) == (last, above)])
    ]  # fmt: skip


def seeds_and_means(points: Sequence[Point], metric: str) -> Spec:
    """The score of every seed as a dot; behind them the mean and its interval."""
    shown = list(points)[:MOST]
    order = [one.name for one in shown]
    rows = [_row(one) | {"kind": "teacher" if one.teacher else "student"} for one in shown]
    dots = [
        {"name": one.name, "seed": seed, "score": _digits(score), "kind": "teacher" if one.teacher else "student"}
        for one in shown
        for seed, score in one.seeds.items()
    ]
    x = {"field": "score", "type": "quantitative", "title": metric, "scale": {"zero": False}, "axis": {"tickCount": 8}}
    y = _rows_axis(order)
    colour = {"field": "kind", "type": "nominal", "title": None, "legend": None,
              "scale": {"domain": ["student", "teacher"], "range": [_BLUE, _ORANGE]}}  # fmt: skip
    return {
        "description": f"{metric} of every seed, with means and 95% intervals. "
        + "; ".join(f"{one.name} {one.score:.1f}" for one in shown),
        "width": "container",
        "height": _ROW_HEIGHT * len(shown),
        "data": {"values": rows},
        "layer": [
            *_where_known(
                rows,
                {
                    "mark": {"type": "rule", "strokeWidth": 9, "opacity": 0.22},
                    "encoding": {"y": y, "x": {**x, "field": "from"}, "x2": {"field": "to"}, "color": colour,
                                 "tooltip": _tips(metric=metric)},
                },
            ),
            {
                "data": {"values": dots},
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.75},
                "encoding": {"y": y, "x": x, "color": colour, "tooltip": [
                    {"field": "name"}, {"field": "seed"}, {"field": "score", "title": metric}]},
            },
            {
                "mark": {"type": "tick", "thickness": 2.5, "size": 18},
                "encoding": {"y": y, "x": x, "color": colour, "tooltip": _tips(metric=metric)},
            },
        ],
    }  # fmt: skip


def differences(apart: Sequence[Apart], metric: str) -> Spec:
    """Paired differences from a baseline with their intervals; grey diamonds cannot be distinguished from zero."""
    other, shown = apart[0].other, sorted(apart, key=lambda one: -one.value)[:MOST]
    yes, no = "distinguished from zero", "not distinguished from zero"
    rows = [
        {"name": one.name, "value": _digits(one.value), "low": _digits(one.low), "high": _digits(one.high),
         **_bar(one.low, one.high, -100.0), "what": yes if one.clear else no}
        for one in shown
    ]  # fmt: skip
    x = {"field": "value", "type": "quantitative", "title": f"minus {other}, points of {metric}",
         "axis": {"tickCount": 8, "labelSeparation": 8}}  # fmt: skip
    y = _rows_axis([one.name for one in shown])
    colour = {"field": "what", "type": "nominal", "title": None, "legend": {"orient": "top"},
              "scale": {"domain": [yes, no], "range": [_BLUE, _GREY]}}  # fmt: skip
    tips = [{"field": "name"}, {"field": "value", "title": "difference"}, {"field": "low"}, {"field": "high"}]
    return {
        "description": f"{metric} minus that of {other}, with 95% intervals. "
        + "; ".join(f"{one.name} {one.value:+.1f}, {yes if one.clear else no}" for one in shown),
        "width": "container",
        "height": _ROW_HEIGHT * len(shown),
        "data": {"values": rows},
        "layer": [
            {"data": {"values": [{"zero": 0}]}, "mark": {"type": "rule", "strokeDash": [3, 3]},
             "encoding": {"x": {"field": "zero", "type": "quantitative"}}},
            *_where_known(
                rows,
                {
                    "mark": {"type": "rule", "strokeWidth": 2},
                    "encoding": {"y": y, "x": {**x, "field": "from"}, "x2": {"field": "to"}, "color": colour,
                                 "tooltip": tips},
                },
            ),
            {
                "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
                "encoding": {"y": y, "x": x, "color": colour, "tooltip": tips, "shape": {
                    "field": "what", "type": "nominal", "title": None, "legend": {"orient": "top"},
                    "scale": {"domain": [yes, no], "range": ["circle", "diamond"]}}},
            },
        ],
    }  # fmt: skip


def costs(points: Sequence[Point], cost: str, title: str, per: float = 1) -> Spec | None:
    """A cost of every model as bars, in units of `per`; None where it is not known of any."""
    known = [one for one in points if one.costs.get(cost)][:MOST]
    if not known:
        return None
    rows = [
        {
            "name": one.name,
            "value": _digits((one.costs[cost] or 0.0) / per),
            "kind": "teacher" if one.teacher else "student",
        }
        for one in known
    ]
    y = _rows_axis([one.name for one in known])
    most = max(one.costs[cost] or 0.0 for one in known) / per
    x = {
        "field": "value", "type": "quantitative", "title": title, "axis": {"tickCount": 4},
        # Room for the number at the end of the longest bar.
        "scale": {"domain": [0, most * 1.18], "nice": False},
    }  # fmt: skip
    return {
        "description": f"{title}. " + "; ".join(f"{row['name']} {row['value']:g}" for row in rows),
        "width": "container",
        "height": _ROW_HEIGHT * len(known),
        "data": {"values": rows},
        "layer": [
            {
                "mark": {"type": "bar", "height": 14},
                "encoding": {"y": y, "x": x, "tooltip": [{"field": "name"}, {"field": "value", "title": title}],
                             "color": {"field": "kind", "type": "nominal", "legend": None, "scale": {
                                 "domain": ["student", "teacher"], "range": [_BLUE, _ORANGE]}}},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "fontSize": 11},
                "encoding": {"y": y, "x": x, "text": {"field": "value", "type": "quantitative", "format": ",.3~r"}},
            },
        ],
    }  # fmt: skip


def spreads(rows: Sequence[Row]) -> Spec:
    """How far layer strategies lie apart on each task, beside what seeds alone would give.

    Rows have `task`, `value`, `low`, `high`, `noise` (its mean) and `noise_high`.
    """
    y = {"field": "task", "type": "nominal", "title": None, "sort": None, "axis": {"grid": False}}
    x = {"field": "value", "type": "quantitative", "title": "points between the highest and the lowest mean",
         "scale": {"zero": True}}  # fmt: skip
    legend = {"orient": "top", "symbolOpacity": 1}
    colour = {"field": "what", "type": "nominal", "title": None, "legend": legend, "scale": {
        "domain": ["strategies", "seeds alone"], "range": [_BLUE, _GREY]}}  # fmt: skip
    named = [{**row, "what": "strategies"} for row in rows]
    noise = [{**row, "what": "seeds alone"} for row in rows if row.get("noise") is not None]
    return {
        "description": "Spread over layer strategies. "
        + "; ".join(f"{row['task']} {row['value']:.1f} points" for row in rows),
        "width": "container",
        "height": (_ROW_HEIGHT + 12) * len(rows),
        "layer": [
            {
                "data": {"values": noise},
                "mark": {"type": "bar", "height": 20, "opacity": 0.35},
                "encoding": {"y": y, "x": {**x, "field": "noise_high"}, "color": colour,
                             "tooltip": [{"field": "noise", "title": "seeds alone, mean"},
                                         {"field": "noise_high", "title": "and hardly more than"}]},
            },
            {
                "data": {"values": [row for row in named if row.get("low") is not None]},
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": colour},
            },
            {
                "data": {"values": named},
                "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
                "encoding": {"y": y, "x": x, "color": colour,
                             "tooltip": [{"field": "task"}, {"field": "value", "title": "max - min"},
                                         {"field": "low"}, {"field": "high"}]},
            },
        ],
    }  # fmt: skip


def _where_known(rows: Sequence[Row], layer: Spec) -> list[Spec]:
    """Return a layer of intervals, for the rows that have one; nothing where none has."""
    known = [row for row in rows if row["low"] is not None]
    return [{"data": {"values": known}, **layer}] if known else []


def _what(one: Point, best: Sequence[Point]) -> str:
    if one.teacher:
        return "teacher"
    return "on the front" if one in best else "beaten at its cost"


def _row(one: Point) -> Row:
    least = -100.0 if min(one.score, *one.seeds.values()) < 0 else 0.0
    return {"name": one.name, "score": _digits(one.score), "low": _digits(one.low), "high": _digits(one.high),
            **_bar(one.low, one.high, least)}  # fmt: skip


def _bar(low: float | None, high: float | None, least: float) -> Row:
    """Return the ends of an interval's bar: no further than scores reach, as the interval of two seeds would."""
    if low is None or high is None:
        return {"from": low, "to": high}
    return {"from": _digits(max(low, least)), "to": _digits(min(high, 100.0))}


def _rows_axis(order: Iterable[str]) -> Row:
    return {"field": "name", "type": "nominal", "title": None, "sort": list(order), "axis": {"grid": False}}


def _tips(*more: tuple[str, str], metric: str) -> list[Row]:
    fields = [("name", "model"), ("score", metric), ("low", "low"), ("high", "high"), *more]
    return [{"field": field, "title": title} for field, title in fields]


def _digits(value: float | None) -> float | None:
    """Return a number with five significant digits, which no chart shows more of."""
    return None if value is None else float(f"{value:.5g}")
