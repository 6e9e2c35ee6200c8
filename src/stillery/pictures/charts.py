"""The charts of analyses as Vega-Lite specifications: heat maps with numbers, and lines with bands.

Sizes fit half a page in print. Every function takes the rows of its data as dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Scale", "heat_map", "line_chart", "stacked", "whole"]

Row = Mapping[str, Any]
Spec = dict[str, Any]

_CELL, _LEAST_CELL, _NUMBERED_CELL = 34, 16, 26
_PANELS = 420
_WIDE, _HIGH = 400, 230


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The colours of a heat map: one scale for all its panels.

    `signed` values have a diverging scale around 0, others cividis. Values from `light_from` on are on light colours,
    where their number is written dark.
    """

    title: str
    low: float
    high: float
    signed: bool = False
    format: str = ".2f"

    def colours(self) -> Spec:
        """Return the scale of Vega-Lite."""
        if not self.signed:
            return {"domain": [self.low, self.high], "scheme": "cividis", "clamp": True}
        most = max(abs(self.low), abs(self.high))
        return {"domain": [-most, most], "scheme": "blueorange", "reverse": True, "clamp": True}

    def ink(self) -> Spec:
        """Return the colour of a cell's number, readable on the cell in light and dark pages."""
        if self.signed:
            most = max(abs(self.low), abs(self.high))
            test = f"abs(datum.value) > {0.75 * most:.6g}"
            return {"condition": {"test": test, "value": "#ffffff"}, "value": "#111111"}
        middle = self.low + 0.55 * (self.high - self.low)
        return {"condition": {"test": f"datum.value > {middle:.6g}", "value": "#111111"}, "value": "#ffffff"}


def whole(title: str, subtitle: str | Sequence[str], body: Spec) -> Spec:
    """Return a specification with a plain title, and what is shown in smaller letters below it."""
    lines = [subtitle] if isinstance(subtitle, str) else list(subtitle)
    return {"title": {"text": title, "subtitle": lines}, **body}


def stacked(*parts: Spec) -> Spec:
    """Return charts one above the other, each with its own scales."""
    return {
        "vconcat": list(parts), "spacing": 24, "resolve": {"scale": {"color": "independent", "shape": "independent"}},
    }  # fmt: skip


def heat_map(
    rows: Sequence[Row],
    *,
    x: str,
    y: str,
    scale: Scale,
    panels: str | None = None,
    columns: int = 2,
    number: str = "value",
) -> Spec:
    """Return a heat map of rows with `x`, `y` and `value`, and with `panel` where there are several.

    `x` and `y` are the titles of the axes. Cells have their `number` in them as long as it is readable: what their
    colour shows, or another field of the rows.
    """
    across, down = (_in_order(dict.fromkeys(row[name] for row in rows)) for name in ("x", "y"))
    names = list(dict.fromkeys(row["panel"] for row in rows)) if panels is not None else []
    across_panels = min(columns, len(names)) or 1
    # All panels side by side are as wide as any other chart, so that numbers stay readable on a phone.
    cell = max(min(_CELL, _PANELS // (across_panels * len(across))), _LEAST_CELL)
    axis = {"labelAngle": 0, "grid": False, "domain": False, "ticks": False}
    encoding = {
        "x": {"field": "x", "type": "ordinal", "sort": across, "title": x, "axis": axis},
        "y": {"field": "y", "type": "ordinal", "sort": down, "title": y, "axis": axis},
    }
    legend: Spec = {"title": scale.title, "format": scale.format}
    if panels is None:
        legend["gradientLength"] = min(150, max(90, cell * len(down)))
    else:
        legend |= {"orient": "bottom", "direction": "horizontal", "gradientLength": 180}
    colour = {"field": "value", "type": "quantitative", "scale": scale.colours(), "legend": legend}
    layers: list[Spec] = [{"mark": {"type": "rect"}, "encoding": {"color": colour}}]
    if cell >= _NUMBERED_CELL:
        text = {"field": number, "type": "quantitative", "format": scale.format}
        layers.append({"mark": {"type": "text", "fontSize": 11}, "encoding": {"text": text, "color": scale.ink()}})
    plain = {"width": cell * len(across), "height": cell * len(down), "layer": layers, "encoding": encoding}
    if panels is None:
        return {"data": {"values": list(rows)}, **plain}
    header = {"title": None, "labelFontSize": 12, "labelFontWeight": 600}
    facet = {"field": "panel", "type": "nominal", "sort": names, "header": header}
    found = {"data": {"values": list(rows)}, "facet": facet, "columns": across_panels, "spacing": 14, "spec": plain}
    if len(names) % across_panels:
        # Otherwise there is an axis under the empty place of the last row.
        found["resolve"] = {"axis": {"x": "independent"}}
    return found


def _in_order(names: Iterable[str]) -> list[str]:
    """Return layer numbers in their order, and other names as they are."""
    found = list(names)
    return sorted(found, key=int) if all(name.isdigit() for name in found) else found


def line_chart(
    rows: Sequence[Row],
    *,
    x: str,
    y: str,
    series: str | None = None,
    band: bool = False,
    points: bool = True,
    x_axis: Mapping[str, Any] | None = None,
    y_scale: Mapping[str, Any] | None = None,
    dashes: str | None = None,
    kind: str = "quantitative",
) -> Spec:
    """Return lines of rows with `x`, `y`, and `series` where there are several; `low` and `high` with a band.

    `dashes` is the title of a second distinction, by `dash`, that is drawn as broken lines.
    """
    encoding: Spec = {"x": {"field": "x", "type": kind, "title": x, "axis": dict(x_axis or {})}}
    colour: Spec = {}
    if series is not None:
        names = list(dict.fromkeys(row["series"] for row in rows))
        legend: Spec = {
            "symbolOpacity": 1,
            "orient": "bottom",
            "columns": 2 if max(map(len, map(str, names))) > 16 else 4,
            "labelLimit": 260,
        }
        colour = {
            "color": {"field": "series", "type": "nominal", "sort": names, "title": series or None, "legend": legend}
        }
    scale = dict(y_scale or {"zero": False})
    layers: list[Spec] = []
    if band:
        bounds = {"y": {"field": "low", "type": "quantitative", "title": y, "scale": scale}, "y2": {"field": "high"}}
        layers.append({"mark": {"type": "area", "opacity": 0.18}, "encoding": bounds | colour})
    line: Spec = {"y": {"field": "y", "type": "quantitative", "title": y, "scale": scale}} | colour
    if dashes is not None:
        kinds = list(dict.fromkeys(row["dash"] for row in rows))
        legend = {"orient": "bottom", "symbolType": "stroke", "symbolSize": 300}
        line["strokeDash"] = {"field": "dash", "type": "nominal", "sort": kinds, "title": dashes or None,
                              "legend": legend}  # fmt: skip
    layers.append({"mark": {"type": "line", "point": points}, "encoding": line})
    return {
        "data": {"values": list(rows)}, "width": _WIDE, "height": _HIGH, "encoding": encoding, "layer": layers,
    }  # fmt: skip
