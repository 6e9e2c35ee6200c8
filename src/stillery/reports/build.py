"""A report from the folders that were named: everything that it shows, before it is a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from stillery.errors import UserError
from stillery.jobs.comparison.models import Model, named
from stillery.jobs.footprint import versions
from stillery.pictures.theme import PALETTE
from stillery.progress import say
from stillery.reports.analyses import read_analyses
from stillery.reports.content import Chart, Figure, Part
from stillery.reports.curves import learning_curves, read_curves
from stillery.reports.disagreements import Browser, browse
from stillery.reports.places import find_sources
from stillery.reports.reproduce import Command, commands_of_runs, commands_of_study
from stillery.reports.run_part import run_parts
from stillery.reports.source import RunFiles, read_runs
from stillery.reports.study_source import StudyParts, read_study
from stillery.reports.words import times
from stillery.study.results import Key

__all__ = ["Report", "build"]

_CURVES = (
    "A line is a run, and a chart one quantity: the score of the dev split, the loss, and the terms it is made "
    "of. Methods have different terms, so compare curves of one term. A click in a legend picks a method out."
)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a page shows.

    Attributes:
        title: its heading.
        facts: what it is of, in a few words each.
        parts: the tables and charts of models that are compared with each other.
        browser: the examples on which students and teachers disagree.
        analyses: figures of `stillery analyse`.
        plans: the plans of studies, by title.
        commands: what makes the numbers again.
        versions: of the packages that wrote the report.
        trained_with: of those that the runs were made with, where they say so.
        failures: why cells of studies failed, by name.
        left_out: files that could not be read.
        progress: how far studies are that are not finished.
    """

    title: str
    facts: Sequence[str]
    parts: Sequence[Part]
    browser: Browser
    analyses: Sequence[Figure]
    plans: Mapping[str, str]
    commands: Sequence[Command]
    versions: Mapping[str, str]
    trained_with: Sequence[str] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    progress: Sequence[str] = ()


def build(places: Sequence[str], *, waiting: bool = False) -> Report:
    """Read what is named and put it together; what cannot be read is left out, with a warning.

    With `waiting` a study that has no finished run yet is fine.
    """
    sources = find_sources(places)
    studies = [read_study(path) for path in sources.studies]
    found, left_out = read_runs(sources.runs)
    runs = named(found)
    analyses, wrong = read_analyses(sources.analyses)
    left_out += [*(line for one in studies for line in one.left_out), *wrong]
    if not waiting and not runs and not analyses and not any(one.parts for one in studies):
        _refuse(sources.studies, left_out)
    for line in left_out:
        say(f"warning: left out: {line}")
    share = sum(len(one.runs) for one in studies) + 1
    parts, browsed = list[Part](), list[tuple[str, RunFiles]]()
    for one in studies:
        for part, files in zip(one.parts, one.runs, strict=True):
            title = " · ".join(text for text in (one.title if len(studies) > 1 else "", part.title) if text)
            figures = _curves_of_study(files, share)
            parts.append(replace(part, title=title, figures=[*part.figures, *figures]))
            browsed += [(_said(key, files), run) for key, run in files]
    if runs:
        parts += _parts_of_runs(runs, share)
        browsed += [(run.name, RunFiles(Path(run.folder))) for run in _best_first(runs)]
    commands = [command for path in sources.studies for command in commands_of_study(path)]
    commands += commands_of_runs([(run.name, RunFiles(Path(run.place))) for run in runs])
    return Report(
        title=_title(studies, runs), facts=_facts(studies, runs, parts), parts=parts, browser=browse(browsed),
        analyses=analyses, plans={one.title: one.plan for one in studies}, commands=commands, versions=versions(),
        trained_with=_trained_with([run for _, run in browsed]), left_out=left_out,
        failures={name: why for one in studies for name, why in one.failures.items()},
        progress=[line for one in studies for line in _progress(one)],
    )  # fmt: skip


def _refuse(studies: Sequence[Path], left_out: Sequence[str]) -> None:
    lines = [f"{path}: no finished run in this study yet; continue it, or follow it with --serve" for path in studies]
    raise UserError(*(left_out or lines))


def _said(key: Key, files: Sequence[tuple[Key, RunFiles]]) -> str:
    """Return what a cell is called: its task where there are several, its row and its seed."""
    task = f"{key[0]}: " if len({one[0] for one, _ in files}) > 1 else ""
    return f"{task}{key[1]}, seed {key[2]}"


def _curves_of_study(files: Sequence[tuple[Key, RunFiles]], share: int) -> list[Figure]:
    """Return the learning curves of all tasks."""
    by_task: dict[str, list[tuple[str, str, RunFiles]]] = {}
    for key, run in files:
        by_task.setdefault(key[0], []).append((key[1], f"{key[1]}, seed {key[2]}", run))
    return _curves(by_task, share)


def _best_first(runs: Sequence[Model]) -> list[Model]:
    return sorted(runs, key=lambda run: -next(iter(run.scores["metrics"].values()), 0.0))


def _parts_of_runs(runs: Sequence[Model], share: int) -> list[Part]:
    """Return the parts of runs with their learning curves, of which the best runs have the first colours."""
    found = []
    for part, some in (parts := run_parts(runs)):
        grouped = len(some) > len(PALETTE)
        files = [(run.how if grouped else run.name, run.name, RunFiles(Path(run.folder))) for run in _best_first(some)]
        figures = _curves({"": files}, share * len(parts))
        found.append(replace(part, figures=[*part.figures, *figures]))
    return found


def _curves(by_task: Mapping[str, Sequence[tuple[str, str, RunFiles]]], share: int) -> list[Figure]:
    """Return the learning curves of runs: by task their colour's name, their own, and their files."""
    charts, said = list[Chart](), ""
    for task, runs in by_task.items():
        curves = [
            curve
            for group, name, run in runs
            if run.values.get("job") != "finetune"
            for curve in read_curves(run.folder / "log.jsonl", group=group, run=name)
        ]
        made, cut = learning_curves(curves, task=task, share=share * len(by_task))
        charts, said = [*charts, *made], cut or said
    caption = f"{_CURVES} {said}".strip()
    return [Figure(title="Learning curves", short="Curves", caption=caption, charts=charts)] if charts else []


def _title(studies: Sequence[StudyParts], runs: Sequence[Model]) -> str:
    if studies:
        return " · ".join(one.title for one in studies)
    if len(runs) == 1:
        return runs[0].name
    return f"{times(len(runs), 'run')} side by side" if runs else "Analyses"


def _facts(studies: Sequence[StudyParts], runs: Sequence[Model], parts: Sequence[Part]) -> list[str]:
    facts = [times(sum(one.done for one in studies) + len(runs), "finished run")]
    if len(parts) > 1:
        facts.append(times(len(parts), "table"))
    return facts


def _progress(one: StudyParts) -> list[str]:
    if one.done == one.cells:
        return []
    counts = [f"{one.done} of {times(one.cells, 'cell')} finished"]
    counts += [f"{one.running} running"] if one.running else []
    counts += [f"{len(one.failures)} failed"] if one.failures else []
    return [f"{', '.join(counts)}."]


def _trained_with(runs: Sequence[RunFiles]) -> list[str]:
    found: dict[str, None] = {}
    for run in runs:
        versions_of = run.metrics.get("versions")
        if isinstance(versions_of, dict):
            found[", ".join(f"{name} {value}" for name, value in versions_of.items())] = None
    return list(found)
