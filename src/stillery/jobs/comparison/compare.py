"""Compare finished runs, or models that were just scored, on the same examples: one table, paired differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from stillery.errors import ErrorList, UserError, nearest
from stillery.evaluation import paired
from stillery.evaluation.measures import Measure
from stillery.evaluation.recorded import measures
from stillery.jobs.comparison.models import Model, is_export, named, read_run, run_folder, teacher_of
from stillery.jobs.comparison.result import Comparison, Difference

__all__ = ["compare_models", "compare_runs", "place_of", "teachers_of", "with_teachers"]

_ROUNDED = 0.01
"""Tolerance for the rounding of scores in metrics.json."""


def compare_runs(places: Sequence[str], *, baseline: str | None = None, metric: str | None = None) -> Comparison:
    """Compare finished runs, and their teachers, from the files in their folders; no model is loaded.

    With exports among them, all are loaded and scored on the examples of the first run (`comparison.exports`).

    Args:
        places: run folders, and exports.
        baseline: the model that the others are compared with: a run folder, or the name of a row. By default the first
            student.
        metric: one of the metrics of the runs; by default the first, which is the official one of a named task.
    """
    if any(is_export(place) for place in [*places, *([] if baseline is None else [baseline])]):
        # Loads torch, which runs are compared without.
        from stillery.jobs.comparison.exports import compare_exports

        return compare_exports(places, baseline=baseline, metric=metric)
    errors = ErrorList()
    runs: list[Model] = []
    for place in [*places, *_more(baseline, places)]:
        with errors.catch():
            run = read_run(place)
            if run.folder not in [one.folder for one in runs]:
                runs.append(run)
    errors.raise_any()
    models = named(with_teachers(runs))
    if len(models) < 2:
        raise UserError(f"{places[0]} is one run, without a teacher scored beside it: name another run to compare")
    return compare_models(models, baseline=None if baseline is None else place_of(baseline, models), metric=metric)


def compare_models(models: Sequence[Model], *, baseline: int | None = None, metric: str | None = None) -> Comparison:
    """Compare models that were scored on the same examples; `baseline` is the index of one of them."""
    place = baseline if baseline is not None else _first_student(models)
    base = models[place]
    for other in models:
        problem = None if other is base else _apart(base, other)
        if problem is not None:
            raise UserError(problem)
    ids = base.recorded.ids
    models = [dataclasses.replace(one, recorded=one.recorded.in_order_of(ids)) for one in models]
    metric = _metric(models, base, metric)
    # The teacher of an unlabelled run has no score: its agreement would be with itself.
    scored = [one for one in models if metric in one.scores["metrics"]]
    found = _measures(scored, base, metric)
    differences: list[Difference] = []
    if found:
        ours = dict(zip((one.folder for one in scored), found, strict=True))
        others = [one for one in scored if one is not models[place]]
        apart = paired.differences([ours[one.folder] for one in others], ours[base.folder], len(base.recorded.units))
        differences = [
            Difference(model=one.name, value=_4(value), interval=_pair(between))
            for one, (value, between) in zip(others, apart, strict=True)
        ]
        models = [_with_interval(one, metric, ours.get(one.folder)) for one in models]
    note = None if found else f"{metric} does not follow from the predictions of these runs: no differences are shown."
    split = base.scores.get("split", base.scores.get("part"))
    return Comparison(
        task=base.scores["task"], split=split, examples=len(ids), metric=metric, baseline=base.name,
        rows=[_row(one, metric) for one in models], differences=differences, note=note,
    )  # fmt: skip


def _row(model: Model, metric: str) -> dict[str, Any]:
    scores, between = model.scores, model.scores["intervals"].get(metric)
    known = ("layers", "parameters", "megabytes", "latency_ms", "train_seconds")
    facts: dict[str, Any] = dict.fromkeys(known) | dict(model.facts)
    if str(facts["layers"]).isdigit():
        facts["layers"] = int(facts["layers"])
    return {
        "name": model.name,
        "how": model.how,
        "folder": model.folder,
        **facts,
        "metric": metric,
        "value": scores["metrics"].get(metric),
        "interval": None if between is None else tuple(between),
        "agreement": None if scores.get("unlabelled") else scores.get("agreement"),
    }


def with_teachers(runs: Sequence[Model]) -> list[Model]:
    """Return the runs preceded by their teachers, each once.

    A teacher that is given as a run keeps its own scores, unless they are on other examples than its students'.
    """
    own_runs = {one.folder: one for one in runs}
    teachers: dict[str, Model] = {}
    for run in runs:
        teacher = teacher_of(run)
        if teacher is None or teacher.folder in teachers:
            continue
        own = own_runs.get(teacher.folder)
        teachers[teacher.folder] = teacher if own is None or _apart(run, own) is not None else own
    return [*teachers.values(), *(one for one in runs if one.folder not in teachers)]


def _more(baseline: str | None, places: Sequence[str]) -> list[str]:
    """Return the baseline, if it is a folder that is not among the runs, as a list."""
    if baseline is None or not Path(baseline).expanduser().is_dir():
        return []
    try:
        folder = str(run_folder(baseline).resolve())
    except UserError:
        # A teacher without a run is known from its students; anything else is refused later, with the valid names.
        return []
    return [folder] if folder not in [str(Path(place).expanduser().resolve()) for place in places] else []


def place_of(baseline: str, models: Sequence[Model]) -> int:
    """Return the index of the model given by the name of its row, or by a folder."""
    names = [one.name for one in models]
    if baseline in names:
        return names.index(baseline)
    path = Path(baseline).expanduser().resolve()
    for place, one in enumerate(models):
        if one.folder in (str(path), str(path.parent), baseline):
            return place
    raise UserError(f"--baseline {baseline}: neither a run folder nor a model in the table; {nearest(baseline, names)}")


def _first_student(models: Sequence[Model]) -> int:
    """Return the index of the first model that has a teacher and is not itself a teacher; else 0."""
    teachers = teachers_of(models)
    students = [place for place, one in enumerate(models) if one.teacher is not None and one.folder not in teachers]
    return next(iter(students), 0)


def teachers_of(models: Sequence[Model]) -> set[str]:
    """Return the folders of those models that are the teacher of another one."""
    named = {place for one in models if one.teacher is not None for place in _places(one.teacher)}
    return {one.folder for one in models if one.folder in named}


def _places(name: str) -> tuple[str, ...]:
    """Return the run folders that a teacher's name may stand for: itself, or the folder its model is in."""
    path = Path(name).expanduser().resolve()
    return name, str(path), str(path.parent)


def _apart(one: Model, other: Model) -> str | None:
    """Return why two models cannot be compared; None if they can."""
    ours, theirs, both = one.recorded, other.recorded, f"{one.name or one.folder} and {other.name or other.folder}"
    if ours.does != theirs.does:
        return f"{both} cannot be compared: one {ours.does}, the other {theirs.does}"
    cure = f"score them on one file: stillery evaluate {one.place} {other.place} --data FILE"
    if one.scored_on != other.scored_on:
        return f"{both} were scored on different data, {one.scored_on} and {other.scored_on}; {cure}"
    if not ours.ids.equals(theirs.ids):
        mine, others = set(ours.ids.to_pylist()), set(theirs.ids.to_pylist())
        if mine != others:
            return (
                f"{both} were scored on different rows of {one.scored_on}: {len(ours)} and {len(theirs)}, of which "
                f"they share {len(mine & others)}; {cure}"
            )
        theirs = theirs.in_order_of(ours.ids)
    if (ours.right is None) != (theirs.right is None):
        return f"{both} cannot be compared: only one of them was scored with labels; {cure}"
    if ours.right is None and (ours.teacher is None or theirs.teacher is None):
        return None
    if ours.right is None:
        same = _same(ours.teacher, theirs.teacher)
        return None if same else f"{both} were scored by their agreement with different teachers; {cure}"
    if not _same(ours.right, theirs.right):
        return f"{both} were scored with different labels for the same rows of {one.scored_on}; {cure}"
    if (ours.ranking is None) != (theirs.ranking is None):
        return f"{both} cannot be compared: only one of them was scored with --query; {cure}"
    if ours.ranking is not None and theirs.ranking is not None and not ours.ranking.query.equals(theirs.ranking.query):
        return f"{both} were scored with different queries for the same rows of {one.scored_on}; {cure}"
    if ours.read is not None and not _same(ours.read, theirs.read):
        return f"{both} were scored on different texts under the same ids of {one.scored_on}; {cure}"
    return None


def _same(one: pa.Array, other: pa.Array) -> bool:
    return bool(one.equals(other.cast(one.type))) if pa.types.is_null(other.type) is False else False


def _metric(models: Sequence[Model], base: Model, asked: str | None) -> str:
    """Return the metric to compare: the requested one, or the baseline's first that all have with an interval."""
    scored = [one for one in models if one.scores["metrics"]]
    shared = [name for name in base.scores["metrics"] if all(name in one.scores["metrics"] for one in scored)]
    bounded = [name for name in shared if any(name in one.scores["intervals"] for one in scored)]
    if asked is not None:
        if asked not in bounded:
            raise UserError(
                f"--metric {asked}: not a metric that all of them have with an interval; {nearest(asked, bounded)}"
            )
        return asked
    if not shared:
        raise UserError(
            f"{' and '.join(one.name for one in scored[:2])} have no metric in common: "
            f"{'; '.join(', '.join(one.scores['metrics']) for one in scored[:2])}"
        )
    return str((bounded or shared)[0])


def _measures(models: Sequence[Model], base: Model, metric: str) -> list[Measure]:
    """Return the metric of each model, recomputable from its predictions; empty if it cannot be recomputed.

    Its value must equal the one in metrics.json: else the two files are from different evaluations.
    """
    classes = list(base.scores.get("per_class", {}))
    possible = measures([one.recorded for one in models], metric, classes)
    wrong: list[str] = []
    for some in possible:
        values = [paired.value(measure, len(base.recorded.units)) for measure in some]
        wrong = [
            f"{one.folder}: metrics.json says {metric} {one.scores['metrics'][metric]:.2f}, and predictions.parquet "
            f"comes to {value:.2f}: they are not of one scoring; copy the run again"
            for one, value in zip(models, values, strict=True)
            if abs(value - one.scores["metrics"][metric]) > _ROUNDED
        ]
        if not wrong:
            return some
    if wrong:
        raise UserError(*wrong)
    return []


def _with_interval(model: Model, metric: str, measure: Measure | None) -> Model:
    """Return the model with an interval of its metric added if missing, as for a teacher scored beside a student."""
    intervals = model.scores["intervals"]
    if measure is None or metric in intervals:
        return model
    recorded = model.recorded
    examples = len(recorded.units)
    if metric == "accuracy" and recorded.does != "tags words" and recorded.ranking is None:
        between = paired.wilson(round(paired.value(measure, examples) * examples / 100), examples)
    else:
        between = paired.interval(measure, examples)
    return dataclasses.replace(model, scores={**model.scores, "intervals": {**intervals, metric: _pair(between)}})


def _4(value: float) -> float:
    return round(value, 4)


def _pair(between: tuple[float, float]) -> tuple[float, float]:
    return _4(between[0]), _4(between[1])
