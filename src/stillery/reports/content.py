"""What a report shows, before it is a page: points of charts, tables, figures, and the parts that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Apart", "Cell", "Chart", "Column", "Figure", "Part", "Point", "Reading", "Table", "costs_of", "number"]


@dataclass(frozen=True, kw_only=True)
class Point:
    """A model, or a method over its seeds, on one task.

    Attributes:
        name: what tables and charts call it.
        how: how it was made, where the name does not say so.
        task: the data it was scored on.
        score: its score in percent, the mean over seeds.
        low, high: the 95% interval of the score.
        seeds: the score of each seed; a single run has one.
        costs: `parameters`, `megabytes`, `latency_ms` or of a model that generates `generation_ms`, `train_seconds`,
            `agreement`, `peak_megabytes`, where known.
        teacher: whether it is a teacher.
        best: whether it is the best student or cannot be distinguished from it.
    """

    name: str
    task: str
    score: float
    how: str = ""
    low: float | None = None
    high: float | None = None
    seeds: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float | None] = field(default_factory=dict)
    teacher: bool = False
    best: bool = False


@dataclass(frozen=True, kw_only=True)
class Apart:
    """A paired difference: the score of `name` minus that of `other`, with its 95% interval.

    It is `clear` if it can be distinguished from zero; `p` is adjusted, where there is one.
    """

    name: str
    other: str
    value: float
    low: float | None
    high: float | None
    clear: bool
    p: float | None = None


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table; `help` explains its heading."""

    name: str
    numeric: bool = True
    help: str = ""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """An entry of a table: its text, a smaller addition such as an interval, and what it is sorted by."""

    text: str
    more: str = ""
    key: float | str | None = None
    bold: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table; `tasks` offers its first column as a filter, and `search` a field to filter all rows by their text.

    `bold` says what rows with a bold entry are, which can be shown alone.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    reading: str = ""
    tasks: Sequence[str] = ()
    search: bool = False
    bold: str = "the best and those not distinguished from it"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart of a figure: a Vega-Lite specification with its data; `group` is what it is shown for, such as a task."""

    spec: Mapping[str, Any]
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Charts under one heading, side by side; those of one group at a time, where they have several groups.

    `short` is its title in the table of contents.
    """

    title: str
    caption: str
    charts: Sequence[Chart]
    short: str

    @property
    def groups(self) -> dict[str, list[int]]:
        """The numbers of the charts of each group."""
        found: dict[str, list[int]] = {}
        for number, chart in enumerate(self.charts):
            found.setdefault(chart.group, []).append(number)
        return found


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Sentences under a heading of their own."""

    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Part:
    """Models that are compared with each other: what is known of them, in sentences, tables and charts."""

    title: str
    sentences: Sequence[str]
    tables: Sequence[Table]
    figures: Sequence[Figure]
    readings: Sequence[Reading] = ()


def costs_of(known: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the costs of a point from those of a run; a model that generates is as fast as it generates.

    >>> costs_of({"latency_ms": 2.0, "texts_per_second": 50.0})
    {'latency_ms': None, 'texts_per_second': 50.0, 'generation_ms': 20.0}
    """
    speed = known.get("texts_per_second")
    return dict(known) | ({"latency_ms": None, "generation_ms": 1000 / speed} if speed else {})


def number(value: float | None, shape: str = "{:.1f}") -> Cell:
    """Return the cell of a number; a dash where there is none.

    >>> number(81.25).text, number(None).text
    ('81.2', '-')
    """
    return Cell(text="-") if value is None else Cell(text=shape.format(value), key=value)
