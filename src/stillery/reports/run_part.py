"""Run folders side by side as a part of a report: those scored on the same examples are compared with each other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.jobs.comparison.compare import compare_models, teachers_of, with_teachers
from stillery.jobs.comparison.models import Model, named
from stillery.jobs.comparison.result import Comparison
from stillery.reports.content import Apart, Cell, Column, Part, Point, Table, costs_of, number
from stillery.reports.figures import cost_figure, difference_figure, pareto_figure, seed_figure
from stillery.reports.seed_groups import seed_table
from stillery.reports.source import RunFiles
from stillery.reports.words import choice, highest

__all__ = ["MARKS", "difference", "run_parts", "scored"]

HIGHER, LOWER = "▲", "▼"
MARKS = (
    f"{HIGHER} {LOWER}: distinguished from the baseline. Without a mark a difference may be chance, which does not "
    "show that two are alike."
)

_CAPTION = (
    "A model minus the baseline on the same examples; bars are 95% intervals of a paired bootstrap over the examples. "
    "They do not cover the seed of training."
)


def run_parts(runs: Sequence[Model]) -> list[tuple[Part, list[Model]]]:
    """Return a part for each set of runs that were scored on the same examples, and the runs it is of."""
    groups: dict[tuple[str, ...], list[Model]] = {}
    for run in runs:
        ids = hashlib.blake2b("\0".join(sorted(run.recorded.ids.to_pylist())).encode(), digest_size=8).hexdigest()
        groups.setdefault((run.recorded.does, run.scored_on, ids), []).append(run)
    return [(_part(some), some) for some in groups.values()]


def _part(runs: Sequence[Model]) -> Part:
    models = named(with_teachers(runs))
    notes: list[str] = []
    found = None
    try:
        found = compare_models(models)
    except UserError as error:
        notes = [f"{line[0].upper()}{line[1:]}." for line in error.lines]
    rows = [_own_row(one) for one in models] if found is None else found.rows
    metric = str(rows[0]["metric"]) if found is None else found.metric
    teachers = teachers_of(models)
    best = _best(models, rows, teachers, found)
    points = [_point(row, runs[0].scored_on, teachers, best) for row in rows if row["value"] is not None]
    apart = _apart(found)
    label = found.baseline if found is not None else ""
    tasks = {runs[0].scored_on: (metric, points)}
    seen = "A dot is a run, the band its 95% interval over the examples; it does not cover the seed of training."
    sentences = [*highest(points, metric), *choice(points), *([] if found is None else found.summary), *notes]
    return Part(
        title=f"{runs[0].scored_on}: {metric}",
        sentences=sentences,
        tables=[_table(rows, metric, apart, best, found), *seed_table(models, metric)],
        figures=[
            *pareto_figure(tasks), *seed_figure(tasks, seen, of="run"),
            *difference_figure({f"minus {label}": apart}, {f"minus {label}": metric}, _CAPTION), *cost_figure(tasks),
        ],
    )  # fmt: skip


def _own_row(model: Model) -> dict[str, Any]:
    """Return the row of a model that is not compared, as a comparison has it."""
    metric, value = next(iter(model.scores["metrics"].items()), (None, None))
    between = model.scores["intervals"].get(metric)
    return {
        "name": model.name, "how": model.how, "folder": model.folder, **model.facts, "metric": metric, "value": value,
        "interval": None if between is None else tuple(between), "agreement": model.scores.get("agreement"),
    }  # fmt: skip


def _best(
    models: Sequence[Model], rows: Sequence[Mapping[str, Any]], teachers: set[str], found: Comparison | None
) -> set[str]:
    """Return the folders of the student with the highest score and of those that cannot be distinguished from it."""
    places = [place for place, row in enumerate(rows) if row["value"] is not None and row["folder"] not in teachers]
    if not places or found is None or not found.differences or found.too_few:
        return set()
    top = max(places, key=lambda place: (rows[place]["value"], rows[place]["name"]))
    against = (
        found if found.baseline == rows[top]["name"] else compare_models(models, baseline=top, metric=found.metric)
    )
    apart = {one.model for one in against.differences if one.is_clear}
    return {rows[place]["folder"] for place in places if rows[place]["name"] not in apart}


def _point(row: Mapping[str, Any], task: str, teachers: set[str], best: set[str]) -> Point:
    low, high = row["interval"] or (None, None)
    known = ("parameters", "megabytes", "latency_ms", "texts_per_second", "train_seconds", "agreement")
    peak = RunFiles(Path(row["folder"])).costs.get("peak_megabytes")
    return Point(
        name=row["name"], how=row["how"], task=task, score=row["value"], low=low, high=high,
        seeds={"run": row["value"]}, costs=costs_of({name: row.get(name) for name in known}) | {"peak_megabytes": peak},
        teacher=row["folder"] in teachers, best=row["folder"] in best,
    )  # fmt: skip


def _apart(found: Comparison | None) -> list[Apart]:
    if found is None:
        return []
    return [
        Apart(
            name=one.model, other=found.baseline, value=one.value, low=one.interval[0], high=one.interval[1],
            clear=one.is_clear and not found.too_few,
        )
        for one in found.differences
    ]  # fmt: skip


def _table(
    rows: Sequence[Mapping[str, Any]], metric: str, apart: Sequence[Apart], best: set[str], found: Comparison | None
) -> Table:
    differences = {one.name: one for one in apart}
    generates = any("texts_per_second" in row for row in rows)
    baseline = "" if found is None else found.baseline
    columns = [
        Column(name="model", numeric=False),
        Column(name="made by", numeric=False),
        Column(name=metric, help="95% interval over the examples; bold: not distinguished from the best student"),
        *([Column(name=f"minus {baseline}", help="95% interval of a paired bootstrap")] if apart else []),
        Column(name="agreement, %", help="how often it gives its teacher's answer"),
        Column(name="layers"),
        Column(name="params, M", help="parameters in millions"),
        Column(name="MB", help="size of the weights on disk"),
        Column(name="texts/s" if generates else "ms/text", help="on the machine of the run"),
        Column(name="training, s"),
    ]
    filled = []
    for row in rows:
        one = differences.get(row["name"])
        cells = [
            Cell(text=row["name"], key=row["name"]),
            Cell(text=row["how"] or "-", key=row["how"]),
            scored(row["value"], row["interval"], bold=row["folder"] in best),
            *([Cell(text="baseline") if row["name"] == baseline else difference(one)] if apart else []),
            number(row["agreement"]),
            Cell(text=str(row["layers"] or "-"), key=row["layers"] if isinstance(row["layers"], int) else None),
            number(None if row["parameters"] is None else row["parameters"] / 1e6),
            number(row["megabytes"]),
            number(row.get("texts_per_second" if generates else "latency_ms")),
            number(row["train_seconds"], "{:.0f}"),
        ]
        filled.append(cells)
    notes = ["Bold: the student with the highest score and all that cannot be distinguished from it."] if best else []
    notes += [MARKS] if apart else []
    return Table(title="Results", columns=columns, rows=filled, notes=notes, search=True)


def scored(value: float | None, between: Any, *, bold: bool = False) -> Cell:
    """Return the cell of a score with its interval."""
    if value is None:
        return Cell(text="-")
    more = "" if between is None or between[0] is None else f"{between[0]:.1f} to {between[1]:.1f}"
    return Cell(text=f"{value:.1f}", more=more, key=value, bold=bold)


def difference(one: Apart | None) -> Cell:
    """Return the cell of a paired difference; one that is distinguished from zero is marked."""
    if one is None:
        return Cell(text="-")
    between = "" if one.low is None else f"{one.low:+.1f} to {one.high:+.1f}"
    p = "" if one.p is None else f", p {'<0.001' if one.p < 0.001 else f'{one.p:.3f}'}"
    mark = f" {HIGHER if one.value > 0 else LOWER}" if one.clear else ""
    return Cell(text=f"{one.value:+.1f}{mark}", more=f"{between}{p}", key=one.value)
