"""What a study tried before it chose, as a table and charts of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stillery.pictures.theme import PALETTE
from stillery.reports.content import Cell, Chart, Column, Figure, Table, number
from stillery.study.tried import Tried

__all__ = ["search_figure", "search_table"]

_MOST = 12
"""The largest number of methods in a chart; the table has all of them."""


def search_table(trials: Sequence[Tried]) -> list[Table]:
    """Return a table of everything that was tried, the chosen ones bold; nothing where there was no choice."""
    if not trials:
        return []
    names = list(dict.fromkeys(name for one in trials for name in one.settings))
    several, each = len({one.task for one in trials}) > 1, any(one.seed is not None for one in trials)
    columns = [
        *([Column(name="task", numeric=False)] if several else []),
        Column(name="method", numeric=False),
        *([Column(name="seed")] if each else []),
        Column(name="trial"),
        *(Column(name=_plain(name), numeric=_numeric(trials, name)) for name in names),
        Column(name="held out", help="mean over seeds on the part of train that was held out; bold: chosen"),
        Column(name="seeds"),
    ]
    rows = [
        [
            *([Cell(text=one.task, key=one.task)] if several else []),
            Cell(text=one.row, key=one.row, more="chosen" if one.chosen else ""),
            *([Cell(text=str(one.seed), key=one.seed)] if each else []),
            Cell(text=str(one.number), key=one.number),
            *(_value(one.settings.get(name)) for name in names),
            Cell(text="-") if one.score is None else Cell(text=f"{one.score:.1f}", key=one.score, bold=one.chosen),
            Cell(text=str(one.seeds), key=one.seeds),
        ]
        for one in trials
    ]
    tasks = list(dict.fromkeys(one.task for one in trials)) if several else []
    return [
        Table(
            title="Settings tried", columns=columns, rows=rows, search=True, tasks=tasks, bold="those that were chosen"
        )
    ]


def search_figure(trials: Sequence[Tried]) -> list[Figure]:
    """Return a chart for each task: the held-out score of every trial, the chosen ones as diamonds."""
    tasks = list(dict.fromkeys(one.task for one in trials))
    charts = [
        Chart(group=task, spec=spec)
        for task in tasks
        if (spec := _chart([one for one in trials if one.task == task and one.score is not None])) is not None
    ]
    caption = (
        "A point is a trial, one combination of settings, scored on the part of train that was held out; diamonds are "
        "those chosen, the line is the best so far. The best of many tries is too high: results are of other examples."
    )
    return [Figure(title="Search for settings", short="Search", caption=caption, charts=charts)] if charts else []


def _chart(trials: Sequence[Tried]) -> dict[str, Any] | None:
    names = list(dict.fromkeys(_name(one) for one in trials))[:_MOST]
    shown = [one for one in trials if _name(one) in names]
    if not shown:
        return None
    rows, best = [], dict[str, float]()
    for one in sorted(shown, key=lambda one: one.number):
        name, score = _name(one), float(one.score or 0.0)
        best[name] = max(score, best.get(name, score))
        rows.append(
            {"trial": one.number, "score": float(f"{score:.5g}"), "best": float(f"{best[name]:.5g}"), "method": name,
             "what": "chosen" if one.chosen else "tried",
             "settings": ", ".join(f"{_plain(key)} {_value(value).text}" for key, value in one.settings.items())}
        )  # fmt: skip
    x = {"field": "trial", "type": "quantitative", "title": "trial", "axis": {"tickMinStep": 1, "format": "d"},
         "scale": {"zero": False, "padding": 12}}  # fmt: skip
    y = {"field": "score", "type": "quantitative", "title": "held-out score", "scale": {"zero": False, "padding": 10}}
    colour = {"field": "method", "type": "nominal", "title": None, "sort": names, "scale": {"range": list(PALETTE)},
              "legend": {"orient": "bottom", "columns": 2, "symbolOpacity": 1, "labelLimit": 220}}  # fmt: skip
    kinds = {"domain": ["tried", "chosen"], "range": ["circle", "diamond"]}
    tips = [{"field": name} for name in ("method", "trial", "settings")] + [{"field": "score", "title": "held out"}]
    return {
        "description": "Held-out score of every trial. "
        + "; ".join(f"{row['method']} chose trial {row['trial']}, {row['score']:g}"
                    for row in rows if row["what"] == "chosen"),
        "width": "container", "height": 240, "data": {"values": rows},
        "layer": [
            {"mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.5, "opacity": 0.5},
             "encoding": {"x": x, "y": {**y, "field": "best"}, "color": colour}},
            {"mark": {"type": "point", "filled": True, "opacity": 0.85},
             "encoding": {
                 "x": x, "y": y, "color": colour, "tooltip": tips,
                 "size": {"condition": {"test": "datum.what === 'chosen'", "value": 170}, "value": 55},
                 "shape": {"field": "what", "type": "nominal", "title": None, "scale": kinds, "legend": None}}},
        ],
    }  # fmt: skip


def _name(one: Tried) -> str:
    return one.row if one.seed is None else f"{one.row}, seed {one.seed}"


def _plain(name: str) -> str:
    return name.removeprefix("options.").replace("_", " ")


def _numeric(trials: Sequence[Tried], name: str) -> bool:
    values = [one.settings[name] for one in trials if name in one.settings]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _value(value: Any) -> Cell:
    """Return the cell of a setting: numbers short, as they are sorted; a dash where a method has no such setting."""
    if value is None:
        return Cell(text="-")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value, "{:.4g}")
    return Cell(text=str(value), key=str(value))
