"""Runs side by side that differ in nothing but the seed, as one row each: mean and scatter over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from stillery.errors import UserError
from stillery.jobs.comparison.models import Model
from stillery.jobs.config.run_file import read_toml
from stillery.lines import listed
from stillery.reports.content import Cell, Column, Table, number

__all__ = ["seed_table"]

_NO_MATTER = {
    "seed", "out", "fingerprints", "processes", "stored_stages", "given_in_python", "paths", "elsewhere", "teacher",
    "log_every", "checkpoint_every", "checkpoint_seconds", "snapshot_every", "track", "tensorboard", "grad_norms",
    "guards", "cache", "cache_limit", "cache_dtype", "graph",
}  # fmt: skip
"""Settings in which runs of one group may differ; a run's teacher is compared by its folder."""

_NAMED = 5
"""The largest number of runs of a row that are named."""

Settings = Mapping[str, str]


def seed_table(runs: Sequence[Model], metric: str) -> list[Table]:
    """Return a table of the runs that differ in the seed alone; nothing where no two do."""
    groups: dict[tuple[tuple[str, str], ...], list[tuple[int, Model]]] = {}
    for run in runs:
        values = _values(run)
        if values is not None and metric in run.scores["metrics"]:
            kept = {key: repr(value) for key, value in values.items() if key not in _NO_MATTER}
            key = tuple(sorted((kept | {"teacher": str(run.teacher)}).items()))
            groups.setdefault(key, []).append((int(values.get("seed", 0)), run))
    several = [(dict(key), some) for key, some in groups.items() if len({seed for seed, _ in some}) > 1]
    if not several:
        return []
    columns = [
        Column(name="made by", numeric=False),
        Column(name=metric, help="mean over seeds"),
        Column(name="sd", help="standard deviation over seeds"),
        Column(name="lowest"),
        Column(name="highest"),
        Column(name="seeds"),
        Column(name="runs", numeric=False),
    ]
    return [
        Table(
            title="Over seeds", columns=columns, rows=[_row(name, some, metric) for name, some in _named(several)],
            notes=["Runs that differ in nothing but the seed."],
        )
    ]  # fmt: skip


def _values(run: Model) -> Mapping[str, Any] | None:
    """Return the settings of a run of a student; None of a teacher or a model without a run file."""
    file = Path(run.folder) / "run.toml"
    try:
        values = read_toml(file) if file.is_file() else {}
    except UserError:
        return None
    return values if values.get("job") == "distill" else None


def _named(
    groups: Sequence[tuple[Settings, list[tuple[int, Model]]]],
) -> list[tuple[str, list[tuple[int, Model]]]]:
    """Return the groups by how their runs were made, with the settings that tell apart those made alike."""
    found = []
    for settings, some in groups:
        how = some[0][1].how
        alike = [other for other, runs in groups if runs[0][1].how == how]
        keys = sorted({key for other in alike for key in other})
        apart = [key for key in keys if len({other.get(key) for other in alike}) > 1]
        said = [f"{key.replace('_', ' ')} {Path(settings.get(key, '-').strip(chr(39))).name}" for key in apart]
        found.append((", ".join([how, *said]), some))
    return found


def _row(name: str, some: Sequence[tuple[int, Model]], metric: str) -> list[Cell]:
    scores = [float(run.scores["metrics"][metric]) for _, run in some]
    names = listed([run.name for _, run in sorted(some, key=lambda pair: pair[0])], _NAMED)
    return [
        Cell(text=name, key=name),
        number(fmean(scores)),
        number(stdev(scores)),
        number(min(scores)),
        number(max(scores)),
        Cell(text=str(len(some)), key=len(some)),
        Cell(text=names, key=names),
    ]
