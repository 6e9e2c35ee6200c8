"""The critical-difference diagram of a study: average ranks over tasks, and bars over methods not told apart.

After Demšar (2006), with Wilcoxon's test and Holm's adjustment in place of Nemenyi's (Benavoli et al., 2016).
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stillery.atomic import atomic_file
from stillery.pictures.draw import write_pictures
from stillery.pictures.theme import PALETTE, SCHEMA
from stillery.study.ranks import CriticalDifference
from stillery.study.reading_overall import limit_of_tasks
from stillery.study.sentences import p_text
from stillery.study.statistics import Conclusions

__all__ = ["cd_specification", "write_cd_diagram"]

_LEAST_METHODS = 3
_NAME = "critical-difference"

# Points. Names stand left and right of the axis; what is 460 wide stays legible on a telephone.
_AXIS, _BAR, _ROW, _CHARACTERS = 220, 11, 19, 66
_CROWDED = 12


def write_cd_diagram(folder: Path, found: Conclusions) -> list[Path]:
    """Write `critical-difference.json`, a Vega-Lite specification, and the picture of it as SVG and PNG.

    Without anything to draw (fewer than three methods or two tasks) there are no files. Raises UserError, once the
    specification is there, if the package that draws is missing.
    """
    spec = cd_specification(found)
    if spec is None:
        return []
    path = folder / f"{_NAME}.json"
    with atomic_file(path) as part:
        text = json.dumps({"$schema": SCHEMA, **spec}, indent=1, ensure_ascii=False)
        part.write_text(f"{text}\n", encoding="utf-8")
    return [path, *write_pictures(spec, folder / _NAME)]


def cd_specification(found: Conclusions) -> dict[str, Any] | None:
    """The diagram as a Vega-Lite specification; None with fewer than three methods or two tasks."""
    one = None if found.overall is None else found.overall.difference
    if one is None or len(one.ranks) < _LEAST_METHODS:
        return None
    groups = [group for group in one.groups if len(group) > 1]
    bars, rows = _BAR * len(groups) + 6, (len(one.ranks) + 1) // 2
    height = bars + _ROW * rows
    return {
        "title": {
            "text": f"Average ranks over {one.guard.count} tasks",
            "subtitle": _said(one, found.level, len(groups)),
            "frame": "bounds",
        },
        "width": _AXIS,
        "height": height,
        "layer": [*_methods(one, bars, height), *_groups(one, groups, height)],
    }


def _said(one: CriticalDifference, level: float, groups: int) -> list[str]:
    """What the picture shows, and the guard where so few tasks cannot tell methods apart at all."""
    tested = "" if one.friedman is None else f"Friedman's test: {p_text(one.friedman)}. "
    bars = "A bar joins methods that cannot be told apart" if groups else "All methods can be told apart"
    lines = [f"{tested}{bars} (Wilcoxon with Holm, {100 * (1 - level):g}%)."]
    if one.guard.reached:
        lines.append(limit_of_tasks(one.guard))
    return [part for line in lines for part in textwrap.wrap(line, _CHARACTERS)]


def _methods(one: CriticalDifference, bars: float, height: float) -> list[dict[str, Any]]:
    """The axis of ranks, and a line from each method's rank to its name: the better half left, the others right."""
    count = len(one.ranks)
    left = (count + 1) // 2
    lines, names = [], []
    for place, (method, rank) in enumerate(one.ranks):
        on_left = place < left
        # The outermost ranks have the shortest lines, so that lines never cross.
        row = place if on_left else count - 1 - place
        end, level = (1 if on_left else count), bars + _ROW * (row + 0.5)
        corners = ((rank, 0.0), (rank, level), (end, level))
        lines += [{"method": method, "corner": at, "rank": x, "y": y} for at, (x, y) in enumerate(corners)]
        # The rank stands between line and name.
        label = f"{method}  {rank:.2f}" if on_left else f"{rank:.2f}  {method}"
        names.append({"method": method, "label": label, "rank": end, "y": level, "left": on_left})
    axis = {
        "orient": "top", "title": "average rank (1 is best)", "values": list(range(1, count + 1)), "tickCount": count,
        "format": "d", "grid": False, "labelFlush": False, "labelOverlap": count > _CROWDED,
    }  # fmt: skip
    x = {"field": "rank", "type": "quantitative", "scale": {"domain": [1, count], "nice": False}, "axis": axis}
    found: list[dict[str, Any]] = [
        {
            "data": {"values": lines},
            "mark": {"type": "line", "strokeWidth": 1, "color": "#888888", "strokeJoin": "round"},
            "encoding": {
                "x": x,
                "y": _down(height),
                "detail": {"field": "method"},
                "order": {"field": "corner"},
            },
        }
    ]
    for on_left in (True, False):
        mark = {"type": "text", "align": "right" if on_left else "left", "dx": -6 if on_left else 6, "fontSize": 13}
        found.append(
            {
                "data": {"values": [name for name in names if name["left"] == on_left]},
                "mark": {**mark, "baseline": "middle"},
                "encoding": {"x": {**x, "axis": axis}, "y": _down(height), "text": {"field": "label"}},
            }
        )
    return found


def _groups(one: CriticalDifference, groups: Sequence[Sequence[str]], height: float) -> list[dict[str, Any]]:
    """A bar for each group from its best to its worst rank, with a point at each of its methods."""
    ranks = dict(one.ranks)
    bars, points = [], []
    for place, group in enumerate(groups):
        own, y = [ranks[method] for method in group], _BAR * (place + 0.5) + 2
        bars.append({"from": min(own), "to": max(own), "y": y})
        points += [{"method": method, "rank": ranks[method], "y": y} for method in group]
    if not bars:
        return []
    rank = {"type": "quantitative"}
    return [
        {
            "data": {"values": bars},
            "mark": {"type": "rule", "strokeWidth": 4, "strokeCap": "round", "color": PALETTE[0]},
            "encoding": {"x": {"field": "from", **rank}, "x2": {"field": "to"}, "y": _down(height)},
        },
        {
            "data": {"values": points},
            "mark": {"type": "point", "filled": True, "size": 42, "color": PALETTE[0], "opacity": 1},
            "encoding": {"x": {"field": "rank", **rank}, "y": _down(height)},
        },
    ]


def _down(height: float) -> dict[str, Any]:
    """Points from the axis down."""
    scale = {"domain": [0, height], "reverse": True, "nice": False, "zero": False}
    return {"field": "y", "type": "quantitative", "scale": scale, "axis": None}
