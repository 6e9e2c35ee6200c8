"""A study's folder as parts of a report, finished or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.jobs.run_folder import finished
from stillery.reports.content import Part
from stillery.reports.source import RunFiles
from stillery.reports.study_part import study_part
from stillery.small_files import read_json
from stillery.study.cells import PlannedCell
from stillery.study.claims import Claims, Pace
from stillery.study.collect import Collected, Damaged, collect
from stillery.study.folder import State, StudyFolder
from stillery.study.kept import kept_tables
from stillery.study.plan import Plan
from stillery.study.results import Key
from stillery.study.statistics import conclude

__all__ = ["StudyParts", "read_study"]


@dataclass(frozen=True, kw_only=True)
class StudyParts:
    """A study as a report shows it.

    Attributes:
        title: its title.
        plan: its plan as text.
        parts: its tables.
        runs: of each part its finished runs: task, row, seed and files.
        failures: why cells failed, by name.
        left_out: finished cells that cannot be read, with the reason.
        cells, done, running: how many cells it has, and how many of them are finished and running.
    """

    title: str
    plan: str
    parts: list[Part]
    runs: list[list[tuple[Key, RunFiles]]]
    failures: dict[str, str]
    left_out: list[str]
    cells: int
    done: int
    running: int


class _Without(StudyFolder):
    """A study's folder in which damaged cells count as not run."""

    def __init__(self, path: Path, damaged: Iterable[str]) -> None:
        super().__init__(path)
        object.__setattr__(self, "damaged", frozenset(damaged))

    damaged: frozenset[str]

    def state(self, cell: PlannedCell) -> State:
        return State.OPEN if cell.name in self.damaged else super().state(cell)

    def metrics(self, name: str) -> dict[str, Any]:
        if name in self.damaged:
            raise FileNotFoundError(name)
        return super().metrics(name)


def read_study(path: Path) -> StudyParts:
    """Read a study's folder; finished cells that cannot be read are left out, and said to be."""
    plan, tables = kept_tables(path)
    folder, damaged = StudyFolder(path), dict[str, str]()
    while True:
        try:
            collected = [collect(folder, plan, table) for table in tables]
            break
        except Damaged as found:
            damaged |= found.cells
            folder = _Without(path, damaged)
    left_out = [
        f"{path / 'cells' / name}: {why}; run the study again, which makes it again" for name, why in damaged.items()
    ]
    names = [str(name) for name in read_json(path / "cells.json")]
    failures = {
        name: why for name in names if (why := folder.failure(name)) is not None and not finished(folder.run(name))
    }
    claims = Claims(folder.claims, pace=Pace())
    there = {name for name in names if finished(folder.run(name)) and name not in damaged}
    return StudyParts(
        title=plan.title, plan=plan.text, parts=[_part(folder, plan, one) for one in collected if _scored(one)],
        runs=[_runs(folder, one) for one in collected if _scored(one)], failures=failures, left_out=left_out,
        cells=len(names), done=len(there),
        running=sum(name not in there and name not in failures and claims.holder(name) is not None for name in names),
    )  # fmt: skip


def _scored(one: Collected) -> bool:
    """Return whether a student has a score."""
    students = {row.name for row in one.results.students}
    return any(key[1] in students and cell.score is not None for key, cell in one.results.cells.items())


def _part(folder: StudyFolder, plan: Plan, one: Collected) -> Part:
    try:
        found = conclude(one.results, baselines=plan.baselines, strategies=plan.strategies)
    except UserError as error:
        raise UserError(*(f"{plan.file}: {line}" for line in error.lines)) from None
    files = {key: RunFiles(folder.run(name)) for key, name in one.runs.items()}

    def costs(key: Key) -> Mapping[str, float | None]:
        return files[key].costs if key in files else _teacher_costs(files, key[0])

    return study_part(found, costs, title=one.table.name, notes=one.notes, tried=one.tried, margin=plan.margin)


def _teacher_costs(files: Mapping[Key, RunFiles], task: str) -> dict[str, float | None]:
    """Return what a student's run says of its teacher, which the study has not trained itself."""
    found = next((one.costs for key, one in files.items() if key[0] == task and "teacher_parameters" in one.costs), {})
    return {"parameters": found.get("teacher_parameters"), "latency_ms": found.get("teacher_latency_ms")}


def _runs(folder: StudyFolder, one: Collected) -> list[tuple[Key, RunFiles]]:
    order = [row.name for row in one.results.rows]
    keys = sorted(one.runs, key=lambda key: (key[0], order.index(key[1]), key[2]))
    return [(key, RunFiles(folder.run(one.runs[key]))) for key in keys]
