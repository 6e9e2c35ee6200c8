"""A study from its plan to its tables: workers fill the cells, and what they come to is written."""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stillery.atomic import atomic_file
from stillery.errors import Stopped, UserError
from stillery.lines import markdown_text
from stillery.progress import bar, console, say
from stillery.study.cd_diagram import write_cd_diagram
from stillery.study.cells import PlannedCell, planned
from stillery.study.claims import Claims, Pace
from stillery.study.collect import Collected, Damaged, collect
from stillery.study.folder import State, StudyFolder
from stillery.study.kept import keep_tables, table_folder
from stillery.study.plan import Plan, read_plan
from stillery.study.ray_workers import RayWorkers
from stillery.study.render import as_markdown, write_tables
from stillery.study.statistics import conclude
from stillery.study.tables import tables
from stillery.study.workers import Workers

__all__ = ["ENGINES", "Study", "devices", "only", "run_study", "spent"]

ENGINES = ("local", "ray")
_LOOK, _ROUNDS = 0.5, 3


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a study has come to.

    Attributes:
        out: its folder.
        states: how far each cell is, by name.
        failures: why cells failed, by name.
        tables: the results of each table.
        text: the tables with their readings, as Markdown.
    """

    out: Path
    states: dict[str, State]
    failures: dict[str, str]
    tables: tuple[Collected, ...]
    text: str

    def __repr__(self) -> str:
        return f"study in {self.out}\n\n{self.text}"


def run_study(
    plan: Path, out: Path, *, workers: int = 1, select: str | None = None, retry: bool = False,
    pace: Pace | None = None, engine: str = "local", address: str | None = None, recipes: Sequence[str] = (),
) -> Study:  # fmt: skip
    """Run every cell that is not finished, together with whoever else works on the same folder, and write the tables.

    Args:
        plan: the plan's file.
        out: the folder of the study.
        workers: worker processes for each GPU, or for each machine where there are none.
        select: only cells whose name this is part of, or that it fits as a pattern, and the teachers they need.
        retry: run cells again that failed.
        pace: how often workers show that they are alive.
        engine: where workers run: `local`, on this machine, or `ray`, on all machines of a Ray cluster.
        recipes: the recipes in the plan that may run; they are Python code.
        address: the cluster, as `ray start` prints it; without one Ray is started on this machine for the study.
    """
    if engine not in ENGINES:
        raise UserError(f"--engine is {engine!r}: choose from {', '.join(ENGINES)}")
    if address is not None and engine != "ray":
        raise UserError("--address is of a Ray cluster: give --engine ray with it")
    read = read_plan(plan, recipes)
    cells, shown = planned(read)
    chosen = only(cells, select)
    folder = StudyFolder(out)
    folder.begin(read, cells)
    keep_tables(out, shown)
    if retry:
        for cell in chosen:
            folder.retry(cell.name)
    known, rounds = folder.said_aside(), 0
    while True:
        if any(_is_open(folder, cell) for cell in chosen):
            _run(folder, chosen, _engine(engine, address, folder, chosen, workers, pace or Pace()), pace or Pace())
        for name, line in folder.said_aside().items():
            if name not in known:
                say(f"warning: {line}")
        known = folder.said_aside()
        try:
            collected = tuple(collect(folder, read, table) for table in shown)
            break
        except Damaged as damaged:
            rounds += 1
            if rounds == _ROUNDS:
                raise Stopped(f"{out}: results are damaged again and again: {damaged}; look at the disk") from None
            for name, wrong in damaged.cells.items():
                folder.set_aside(name, wrong)
            if not {cell.name for cell in chosen} & damaged.cells.keys():
                chosen = [cell for cell in cells if cell.name in damaged.cells]
    states = {cell.name: folder.state(cell) for cell in cells}
    failures = {cell.name: folder.failure(cell.name) or "" for cell in cells if states[cell.name] is State.FAILED}
    text = "\n".join(_written(folder, read, one) for one in collected)
    with atomic_file(out / "tables" / "report.md") as part:
        part.write_text(text, encoding="utf-8")
    return Study(out=out, states=states, failures=failures, tables=collected, text=text)


def only(cells: Sequence[PlannedCell], select: str | None) -> list[PlannedCell]:
    """The cells that are asked for, and those they need: their teachers, and the trials before them."""
    if select is None:
        return list(cells)
    found = [cell for cell in cells if select in cell.name or fnmatch.fnmatchcase(cell.name, select)]
    if not found:
        raise UserError(f"--only {select}: no cell is called so; see their names with --dry-run")
    needed = {cell.teacher for cell in found}
    needed |= {name for cell in found if cell.search for names in cell.search.trials[: cell.number] for name in names}
    return [cell for cell in cells if cell in found or cell.name in needed]


def devices() -> list[str | None]:
    """The GPUs that workers are spread over, without loading torch; one entry of nothing where there are none."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:
        return [*(one for one in shown.split(",") if one not in ("", "-1"))] or [None]
    found = sorted(Path("/dev").glob("nvidia[0-9]*"))
    return [one.name.removeprefix("nvidia") for one in found] or [None]


def _engine(
    engine: str, address: str | None, folder: StudyFolder, cells: Sequence[PlannedCell], number: int, pace: Pace
) -> Workers | RayWorkers:
    if engine == "ray":
        return RayWorkers(folder, cells, number, pace, address)
    return Workers(folder, cells, number, pace, devices())


def _run(folder: StudyFolder, cells: Sequence[PlannedCell], engine: Workers | RayWorkers, pace: Pace) -> None:
    """Have workers run the cells, and show how far they are."""
    began, before = time.monotonic(), _done(folder, cells)
    told = set(before)
    with engine as workers, bar("study", len(cells)) as shown:
        shown.advance(len(before))
        claims = Claims(folder.claims, pace=pace)
        while True:
            wrong = workers.look()
            done = _done(folder, cells)
            note = _notes(folder, cells, done, len(done) - len(before), began, claims)
            for cell in cells:
                if cell.name in done and cell.name not in told:
                    told.add(cell.name)
                    shown.advance(1, note)
                    if not console.is_terminal:
                        say("; ".join([f"{len(done)} of {len(cells)} cells", _came_to(folder, cell), *note]))
            shown.advance(0, note)
            if wrong is not None:
                raise Stopped(f"{wrong}; everything finished is kept: run the same command to continue")
            if not workers.busy:
                return
            time.sleep(_LOOK)


def _is_open(folder: StudyFolder, cell: PlannedCell) -> bool:
    state = folder.state(cell)
    return state is State.OPEN or (state is State.FINISHED and folder.damage(cell) is not None)


def _done(folder: StudyFolder, cells: Sequence[PlannedCell]) -> dict[str, State]:
    states = {cell.name: folder.state(cell) for cell in cells}
    return {name: state for name, state in states.items() if state is not State.OPEN}


def _notes(
    folder: StudyFolder, cells: Sequence[PlannedCell], done: dict[str, State], new: int, began: float, claims: Claims
) -> list[str]:
    """How many have failed and run, and how long the rest will take."""
    failed, left = sum(state is not State.FINISHED for state in done.values()), len(cells) - len(done)
    running = sum(cell.name not in done and claims.holder(cell.name) is not None for cell in cells)
    notes = [f"{failed} failed"] if failed else []
    notes += [f"{running} running"] if left else []
    if new and left:
        notes.append(f"about {spent(left * (time.monotonic() - began) / new)} left")
    return notes


def spent(seconds: float) -> str:
    """A time in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _came_to(folder: StudyFolder, cell: PlannedCell) -> str:
    """What a cell came to, in words."""
    state = folder.state(cell)
    if state is not State.FINISHED:
        reason = folder.failure(cell.name) or f"its teacher failed: {folder.failure(cell.teacher or '')}"
        return f"{cell.name} failed: {reason}"
    try:
        name, value = next(iter(folder.metrics(cell.name)["metrics"].items()))
    except (OSError, ValueError, KeyError):
        return cell.name
    return f"{cell.name}: {name} {value:.2f}"


def _written(folder: StudyFolder, plan: Plan, one: Collected) -> str:
    """Write a table in all formats; gives it as Markdown."""
    try:
        found = conclude(one.results, baselines=plan.baselines, strategies=plan.strategies)
    except UserError as error:
        raise UserError(*(f"{plan.file}: {line}" for line in error.lines)) from None
    place = table_folder(folder.path, one.table.name)
    write_tables(place, found, margin=plan.margin)
    try:
        write_cd_diagram(place, found)
    except UserError as error:
        say(f"{place}: without a critical-difference diagram: {error}")
    heading = f"# {markdown_text(plan.title)}{f': {one.table.name}' if one.table.name else ''}"
    notes = [f"{heading}\n", *(f"{note}\n" for note in one.notes)]
    return "\n".join([*notes, *(as_markdown(table) for table in tables(found, margin=plan.margin))])
