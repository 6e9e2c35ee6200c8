"""Comparison table of several models: size, quality and speed."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from stillery.lines import plain

__all__ = ["cells", "heads", "notes", "table"]

DASH = "-"

_NARROWEST = 10
"""Minimum width of the name column, however narrow the terminal."""

Row = Mapping[str, Any]


def heads(rows: Sequence[Row]) -> list[str]:
    """The column names, among them the metric if all rows share it."""
    speed = "texts per second" if _generates(rows) else "latency"
    measured = f"{_shared(rows) or 'score'} (interval)"
    return ["model", "layers", "parameters", "size on disk", measured, "teacher agreement", speed, "training"]


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """The cell texts of each row; a value that is missing or None is a dash.

    Row keys: `name`, `layers`, `parameters`, `megabytes`, `metric`, `value`, `interval`, `agreement`, `latency_ms` or,
    for models that generate text, `texts_per_second`, `train_seconds`.
    """
    named, generates = _shared(rows) is None, _generates(rows)
    return [
        [
            plain(str(row.get("name") or DASH)),
            _cell(row, "layers", "{}"),
            _cell(row, "parameters", "{:.1f}M", per=1e6),
            _cell(row, "megabytes", "{:.1f} MB"),
            _measured(row, named=named),
            _cell(row, "agreement", "{:.1f}%"),
            _cell(row, "texts_per_second", "{:.1f}") if generates else _cell(row, "latency_ms", "{:.1f} ms"),
            _cell(row, "train_seconds", "{:.0f} s"),
        ]
        for row in rows
    ]


def notes(rows: Sequence[Row]) -> str:
    """A caption that explains the numbers."""
    if _generates(rows):
        return "Intervals are 95%. Texts per second: generated as each model was scored."
    return "Intervals are 95%. Latency: median per sentence, batch 1, one thread."


def table(rows: Sequence[Row], width: int = 80) -> Table:
    """Build a table of models, one row each, for a terminal of the given width."""
    names, filled = _headings(heads(rows)), cells(rows)
    others = [
        max(len(part) for text in (name, *(row[place] for row in filled)) for part in text.split("\n"))
        for place, name in enumerate(names)
        if place
    ]
    room = max(_NARROWEST, width - sum(others) - len(others))
    # Only names are wrapped, between words: a truncated number would be a wrong number.
    found = Table(box=SIMPLE_HEAD, padding=0, show_edge=False, caption=notes(rows), caption_justify="left")
    folded = any(len(row[0]) > room for row in filled)
    found.add_column(names[0], no_wrap=True, min_width=room if folded else None)
    for name in names[1:]:
        found.add_column(name, justify="right", no_wrap=True)
    for first, *rest in filled:
        found.add_row(Text("\n".join(_folded(first, room))), *rest)
    return found


def _folded(name: str, room: int) -> list[str]:
    """Wrap a name into lines; words are only broken at hyphens if they are longer than a line."""
    long = any(len(word) > room for word in name.split())
    return textwrap.wrap(name, room, break_on_hyphens=long)


def _headings(names: Sequence[str]) -> list[str]:
    """The column names on two lines, so that a table fits into 80 columns."""
    parts = {
        "parameters": "params", "size on disk": "size on\ndisk", "teacher agreement": "teacher\nagreement",
        "texts per second": "texts\nper s",
    }  # fmt: skip
    return [parts.get(name, name.replace(" (", "\n(")) for name in names]


def _shared(rows: Sequence[Row]) -> str | None:
    """The metric that all rows share, if any."""
    metrics = {row["metric"] for row in rows if row.get("metric")}
    return metrics.pop() if len(metrics) == 1 else None


def _generates(rows: Sequence[Row]) -> bool:
    return any("texts_per_second" in row for row in rows)


def _measured(row: Row, *, named: bool) -> str:
    value = _cell(row, "value", "{:.1f}")
    between = row.get("interval")
    around = "" if between is None else f" ({between[0]:.1f}-{between[1]:.1f})"
    name = f"{row['metric']} " if named and row.get("metric") else ""
    return DASH if value == DASH else f"{name}{value}{around}"


def _cell(row: Row, key: str, shape: str, per: float | None = None) -> str:
    value = row.get(key)
    return DASH if value is None else shape.format(value if per is None else value / per)
