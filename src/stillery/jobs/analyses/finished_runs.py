"""Finished runs of students as an analysis compares them: task, method, seed, score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillery.errors import UserError, nearest
from stillery.jobs.comparison.models import Model, read_run
from stillery.jobs.config.run_file import read_toml
from stillery.jobs.run_folder import finished
from stillery.lines import listed

__all__ = ["FinishedRun", "by_group", "finished_runs", "told_apart"]

_NOT_THE_METHOD = {
    "seed", "out", "fingerprints", "processes", "stored_stages", "teacher", "task", "data", "data_dir", "job", "paths",
    "log_every", "checkpoint_every", "snapshot_every", "track", "tensorboard", "grad_norms", "guards", "cache",
    "cache_limit", "cache_dtype", "graph", "eval_every", "batch_size", "accumulate", "elsewhere",
}  # fmt: skip
"""Settings that do not make another method of a run; its task is told apart anyway."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FinishedRun:
    """A finished student: its folder, the values of its run file, its score in one metric."""

    folder: Path
    values: Mapping[str, Any]
    task: str
    metric: str
    score: float

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.values.get("seed", 0))

    @property
    def method(self) -> str:
        """The method, or the recipe of one's own."""
        return str(self.values.get("recipe") or self.values.get("method"))


def finished_runs(places: Sequence[str], metric: str | None = None) -> list[FinishedRun]:
    """Return the finished students in these folders: runs, folders of runs, or a study; all with the same metric."""
    folders = list(dict.fromkeys(folder for place in places for folder in _folders(Path(place).expanduser())))
    found = []
    for folder in folders:
        values = read_toml(folder / "run.toml") if (folder / "run.toml").is_file() else {}
        if values.get("job") == "distill":
            found.append(_run(read_run(str(folder)), folder, values, metric))
    if not found:
        raise UserError(f"{listed(places, 3)}: no finished run of stillery distill there; give run folders, or a study")
    metrics = dict.fromkeys(one.metric for one in found)
    if len(metrics) > 1:
        raise UserError(f"the runs have different first metrics ({', '.join(metrics)}): choose one with --metric")
    return found


def _folders(place: Path) -> list[Path]:
    if not place.is_dir():
        raise UserError(f"{place}: no such folder of runs")
    if (place / "run.toml").is_file():
        if not finished(place):
            raise UserError(f"{place}: this run is not finished, so it has no scores yet; continue it with --resume")
        return [place]
    inside = place / "cells" if (place / "cells").is_dir() else place
    return sorted(folder for folder in inside.iterdir() if (folder / "run.toml").is_file() and finished(folder))


def _run(model: Model, folder: Path, values: Mapping[str, Any], metric: str | None) -> FinishedRun:
    scores = model.scores["metrics"]
    name = next(iter(scores)) if metric is None else metric
    if name not in scores:
        raise UserError(f"--metric {name}: {folder} has no such score: {nearest(name, scores)}")
    return FinishedRun(
        folder=folder, values=values, task=str(model.scores["task"]), metric=name, score=float(scores[name])
    )


def by_group(runs: Sequence[FinishedRun]) -> dict[str, dict[str, list[FinishedRun]]]:
    """Return the runs by task and method; runs of one method with other settings are told apart by those."""
    names = told_apart(runs)
    found: dict[str, dict[str, list[FinishedRun]]] = {}
    for one, name in sorted(zip(runs, names, strict=True), key=lambda pair: pair[0].seed):
        found.setdefault(one.task, {}).setdefault(name, []).append(one)
    order = list(dict.fromkeys(names))
    return {task: {name: methods[name] for name in order if name in methods} for task, methods in found.items()}


def told_apart(runs: Sequence[FinishedRun]) -> list[str]:
    """Return a name for each run: its method, and the settings in which runs of this method differ beside the seed."""
    names = []
    for one in runs:
        alike = [other for other in runs if (other.method, other.task) == (one.method, one.task)]
        keys = sorted({key for other in alike for key in other.values} - _NOT_THE_METHOD)
        apart = [key for key in keys if len({repr(other.values.get(key)) for other in alike}) > 1]
        said = ", ".join(f"{key.replace('_', ' ')} {one.values.get(key)}" for key in apart)
        names.append(f"{one.method} ({said})" if said else one.method)
    return names
