"""Named tasks: describe them, download their data, and average the scores of runs on them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillery.data.tasks.load_task import GENERATION_TASKS, TASKS, GenerationTask
from stillery.data.tasks.specification import Task
from stillery.data.tasks.task_files import download, find_local
from stillery.errors import ErrorList, UserError, nearest
from stillery.evaluation.average import MISMATCHED, STYLES, average
from stillery.jobs.run_folder import finished, read_metrics
from stillery.lines import listed

__all__ = ["average_runs", "describe_tasks", "fetch_tasks"]

Scores = Mapping[str, float]


def describe_tasks(data_dir: Path | None = None) -> list[dict[str, Any]]:
    """Return a description of every task: its metrics and classes, and where its data is on this machine, if it is."""
    tasks: list[Task | GenerationTask] = [*TASKS.values(), *GENERATION_TASKS.values()]
    return [_described(task, data_dir) for task in tasks]


def fetch_tasks(names: Sequence[str]) -> list[dict[str, Any]]:
    """Download tasks from the hub into its local cache; none of them if one is unknown or not on the hub."""
    errors = ErrorList()
    known: dict[str, Task | GenerationTask] = {**TASKS, **GENERATION_TASKS}
    tasks: list[Task | GenerationTask] = []
    for name in names:
        with errors.catch():
            if name not in known:
                raise UserError(f"no task {name!r}; {nearest(name, known)}")
            task = known[name]
            if task.hub is None:
                download(task)
            tasks.append(task)
    errors.raise_any()
    fetched = []
    for task in tasks:
        found = download(task)
        fetched.append({"name": task.name, "where": found.where, "splits": list(found.splits)})
    return fetched


def average_runs(places: Sequence[Path], style: str = "glue") -> dict[str, Any]:
    """Return the average score over tasks of finished runs, or of files written by `stillery evaluate --json`.

    Several runs of one task, such as those of several seeds, are averaged first. The dict has `style`, `about`,
    `average`, `columns` (name to value), `runs` (number per set of examples), `missing` and `left_out`.
    """
    if style not in STYLES:
        raise UserError(f"no style {style!r} of averages; {nearest(style, STYLES)}")
    wanted = {one for column in STYLES[style].columns for one in column.sets}
    errors = ErrorList()
    runs: dict[str, list[Scores]] = defaultdict(list)
    left_out = []
    for place in places:
        with errors.catch():
            found = _scores(place)
            for name, scores in found.items():
                if name in wanted:
                    runs[name].append(scores)
            if wanted.isdisjoint(found):
                left_out.append(f"{place} ({', '.join(found)})")
    errors.raise_any()
    result = average({name: _mean(some) for name, some in runs.items()}, style)
    if result.value is None:
        raise UserError(
            f"no run on a task of the style {style} ({', '.join(sorted(wanted))}): {listed(left_out, 5, between='; ')}"
        )
    return {
        "style": style,
        "about": STYLES[style].about,
        "average": round(result.value, 4),
        "columns": {name: round(value, 4) for name, value in result.columns.items()},
        "runs": {name: len(some) for name, some in runs.items()},
        "missing": list(result.missing),
        "left_out": left_out,
    }


def _described(task: Task | GenerationTask, data_dir: Path | None) -> dict[str, Any]:
    found = find_local(task, data_dir)
    classes = None if isinstance(task, GenerationTask) or task.labels.regression else list(task.labels.names)
    return {
        "name": task.name,
        "about": task.about,
        "metrics": list(task.metrics),
        "labels": classes,
        "writes_text": isinstance(task, GenerationTask),
        "out_of_domain_for": task.out_of_domain_for,
        "on_the_hub": task.hub.repo if task.hub is not None else None,
        "found": None if found is None else found.where,
        "splits": [] if found is None else list(found.splits),
    }


def _scores(place: Path) -> dict[str, Scores]:
    """Return the metrics of a run by the set of examples they were computed on."""
    metrics = _metrics(place)
    task, own = metrics.get("task"), metrics.get("metrics")
    if not isinstance(task, str) or not isinstance(own, dict):
        raise UserError(
            f"{place}: no task with metrics in it; give run folders, or what `stillery evaluate --json` printed"
        )
    found: dict[str, Scores] = {task: _numbers(own, place)}
    also = metrics.get("also")
    beside = also.get("dev_mismatched") if isinstance(also, dict) else None
    if task == "mnli" and isinstance(beside, dict):
        found[MISMATCHED] = _numbers(beside.get("metrics"), place)
    return found


def _numbers(scores: Any, place: Path) -> Scores:
    named = scores if isinstance(scores, dict) else {"metrics": scores}
    for name, value in named.items():
        if not isinstance(value, (int, float)):
            raise UserError(f"{place}: {name} is {str(value)[:40]!r}, not a number; score the model again")
    return named


def _metrics(place: Path) -> Any:
    if place.is_dir():
        if not finished(place):
            raise UserError(f"{place}: no finished run in this folder; give one, or continue this one with --resume")
        return read_metrics(place)
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{place}: no such run folder or file") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{place}: cannot be read as JSON ({error})") from None
    return found if isinstance(found, dict) else {}


def _mean(runs: Sequence[Scores]) -> Scores:
    shared = [metric for metric in runs[0] if all(metric in scores for scores in runs)]
    return {metric: sum(scores[metric] for scores in runs) / len(runs) for metric in shared}
