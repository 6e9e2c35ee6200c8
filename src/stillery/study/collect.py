"""What the run folders of a study come to: for each table the chosen cells, with their scores and predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.models.model_folder import model_folder
from stillery.small_files import read_json
from stillery.study.answers import Answers, read_answers
from stillery.study.cells import PlannedCell, PlannedTable
from stillery.study.folder import State, StudyFolder, held_out_score
from stillery.study.plan import Plan
from stillery.study.results import ROUNDED, Cell, Key, Results, Task
from stillery.study.search import RANDOM
from stillery.study.terms import differences
from stillery.study.tried import Tried, tried_in

__all__ = ["Collected", "Damaged", "collect"]


class Damaged(Exception):
    """Results of cells that cannot be read, by cell with what is wrong."""

    def __init__(self, cells: Mapping[str, str]) -> None:
        self.cells = dict(cells)
        super().__init__(", ".join(cells))


@dataclass(frozen=True, kw_only=True)
class Collected:
    """A table with its results.

    `chosen` says which of several settings were chosen, `tried` all that were tried, `notes` what a reader has to know
    about the terms, `runs` the names of the cells that scores are of.
    """

    table: PlannedTable
    results: Results
    chosen: Mapping[tuple[str, str, int], Mapping[str, Any]] = field(default_factory=dict)
    tried: tuple[Tried, ...] = ()
    notes: tuple[str, ...] = ()
    runs: Mapping[Key, str] = field(default_factory=dict)


def collect(folder: StudyFolder, plan: Plan, table: PlannedTable) -> Collected:
    """The results of a table; raises `Damaged` where finished cells cannot be read."""
    reader = _Reader(folder)
    picked = _picked(reader, plan, table)
    cells: dict[Key, Cell] = {}
    for key, cell in picked.items():
        found = reader.cell(cell)
        if found is not None:
            cells[key] = found
    counts = _counts(folder, table)
    had = {row: done for row, (done, of) in counts.items() if of > 1}
    rows = [replace(row, trials=had.get(row.name)) for row in table.rows]
    runs = {key: picked[key].name for key, found in cells.items() if found.score is not None}
    for teacher in table.teachers:
        own = _teacher_cells(reader, plan, table, teacher.cells, teacher.folders, picked)
        if own:
            rows.append(teacher.row)
            cells |= {
                (task, teacher.row.name, seed): one for task, one in own.items() for seed in teacher.row.seeds or ()
            }
            runs |= {
                (task, teacher.row.name, seed): teacher.cells[task]
                for task, one in own.items()
                for seed in teacher.row.seeds or ()
                if task in teacher.cells and one.score is not None
            }
    if reader.damaged:
        raise Damaged(reader.damaged)
    tasks = tuple(Task(name=name, metric=reader.metric(table, name)) for name in table.tasks)
    published = tuple(row for row in plan.published if row.table in (None, table.name))
    results = Results(tasks=tasks, rows=tuple(rows), seeds=plan.seeds, cells=cells, published=published)
    chosen = {key: values for key, cell in picked.items() if (values := folder.tried(cell))}
    notes = _notes(folder, plan, table, picked, reader)
    tried = tried_in(folder, table, picked, reader.held_out, each=plan.select == "each")
    return Collected(table=table, results=results, chosen=chosen, tried=tried, notes=notes, runs=runs)


def _picked(reader: _Reader, plan: Plan, table: PlannedTable) -> dict[Key, PlannedCell]:
    """Of the cells that differ in what is tried the one that is best on what was held out; the first of equals."""
    picked: dict[Key, PlannedCell] = {}
    for row in table.rows:
        for task in table.tasks:
            trials = {seed: table.trials.get((task, row.name, seed), ()) for seed in plan.seeds}
            best = _best(reader, trials) if plan.select == "mean" else None
            for seed, cells in trials.items():
                if cells:
                    own = _best(reader, {seed: cells}) if best is None else best
                    picked[task, row.name, seed] = cells[own]
    return picked


def _best(reader: _Reader, trials: Mapping[int, Sequence[PlannedCell]]) -> int:
    """Which of the settings has the highest mean over seeds, of those that most seeds have finished."""
    count = min((len(cells) for cells in trials.values()), default=1)
    if count < 2:
        return 0
    scores = [[reader.held_out(cells[at]) for cells in trials.values()] for at in range(count)]
    there = [[one for one in some if one is not None] for some in scores]
    return max(range(count), key=lambda at: (len(there[at]), sum(there[at]) / max(len(there[at]), 1), -at))


class _Reader:
    """Reads finished cells, and notes those that cannot be read."""

    def __init__(self, folder: StudyFolder) -> None:
        self.folder = folder
        self.damaged: dict[str, str] = {}
        self._metrics: dict[str, dict[str, Any]] = {}

    def metrics(self, name: str) -> dict[str, Any] | None:
        """The metrics of a cell, if it is finished."""
        if name not in self._metrics:
            try:
                self._metrics[name] = self.folder.metrics(name)
            except FileNotFoundError:
                return None
            except (OSError, ValueError):
                self.damaged[name] = "metrics.json is not readable"
                return None
        return self._metrics[name]

    def held_out(self, cell: PlannedCell) -> float | None:
        """The score of the weights that were kept, on what was held out."""
        found = self.metrics(cell.name)
        if found is None:
            return None
        return held_out_score(found)

    def cell(self, cell: PlannedCell) -> Cell | None:
        """A cell of a table: its score and predictions, or why there are none; None of one that was not run."""
        state = self.folder.state(cell)
        if state is State.FAILED:
            return Cell(failure=self.folder.failure(cell.name))
        if state is State.BLOCKED:
            return Cell(failure=f"its teacher failed: {self.folder.failure(cell.teacher or '')}")
        return self.finished(cell.name) if state is State.FINISHED else None

    def finished(self, name: str) -> Cell | None:
        """The score and predictions of a finished cell."""
        metrics = self.metrics(name)
        if metrics is None:
            return None
        metric, score = next(iter(metrics["metrics"].items()))
        try:
            return Cell(score=float(score), answers=_answers(self.folder.run(name), metric, float(score)))
        except _Unreadable as error:
            self.damaged[name] = str(error)
            return None

    def metric(self, table: PlannedTable, task: str) -> str:
        """The metric that the cells of a task are compared by."""
        for (name, _, _), cells in table.trials.items():
            for cell in cells if name == task else ():
                found = self.metrics(cell.name) if self.folder.state(cell) is State.FINISHED else None
                if found is not None:
                    return str(next(iter(found["metrics"])))
        return "score"


class _Unreadable(Exception):
    """Predictions that cannot be read."""


def _answers(run: Path, metric: str, score: float) -> Answers | None:
    """The predictions of a run; None where its metric cannot be worked out of them."""
    path, labels = run / "predictions.parquet", _labels(run)
    found = None
    # Which class F1 is of depends on the task, and the score of the run shows it.
    for positive in [None, *labels] if metric == "f1" else [None]:
        try:
            found = read_answers(path, metric, labels=labels or None, positive=positive)
        except UserError as error:
            if "not readable" in str(error):
                raise _Unreadable("predictions.parquet is not readable") from None
            return None
        if abs(found.score - score) <= ROUNDED:
            return found
    raise _Unreadable("predictions.parquet does not give the score of metrics.json")


def _labels(run: Path) -> list[str]:
    try:
        config = read_json(Path(model_folder(str(run))) / "config.json")
        named = {int(number): name for number, name in (config.get("id2label") or {}).items()}
    except (OSError, ValueError, UserError):
        return []
    return [named[number] for number in sorted(named)]


def _teacher_cells(
    reader: _Reader, plan: Plan, table: PlannedTable, own: Mapping[str, str], folders: Mapping[str, str],
    picked: Mapping[Key, PlannedCell],
) -> dict[str, Cell]:  # fmt: skip
    """The teacher on each task: its own cell, or of a finished one what the runs of its students say."""
    found: dict[str, Cell] = {}
    for task in table.tasks:
        name = own.get(task)
        if name is not None:
            failure = reader.folder.failure(name)
            cell = reader.finished(name) if failure is None else Cell(failure=failure)
            found |= {} if cell is None else {task: cell}
            continue
        for (of, _, _), cell_of in picked.items():
            metrics = reader.metrics(cell_of.name) if of == task and cell_of.teacher is None else None
            if metrics and metrics.get("teacher_metrics") and reader.folder.state(cell_of) is State.FINISHED:
                found[task] = Cell(score=float(next(iter(metrics["teacher_metrics"].values()))))
                break
    return found


def _notes(
    folder: StudyFolder, plan: Plan, table: PlannedTable, picked: Mapping[Key, PlannedCell], reader: _Reader
) -> tuple[str, ...]:
    finished = {key: cell for key, cell in picked.items() if folder.state(cell) is State.FINISHED}
    notes = differences(folder, table, finished, plan.vary)
    splits = sorted({str((reader.metrics(cell.name) or {}).get("split")) for cell in finished.values()})
    if splits:
        first = reader.metrics(next(iter(finished.values())).name) or {}
        held_out = (first.get("training") or {}).get("selected_on")
        by = "a part of train that was held out" if held_out else "dev"
        notes = [f"Scored on {' and '.join(splits)}, once; weights were chosen on {by}.", *notes]
    if any(len(cells) > 1 for cells in table.trials.values()):
        how = "the mean over seeds" if plan.select == "mean" else "each seed"
        by = f" by TPE, the first {RANDOM} of them at random" if plan.search == "tpe" else ""
        counts = {row: f"{had}" if had == of else f"{had} of {of}" for row, (had, of) in _counts(folder, table).items()}
        said = ", ".join(f"{row} {count}" for row, count in counts.items())
        notes.append(f"Settings tried{by}, one chosen by {how} on what was held out: {said}.")
        for row in dict.fromkeys(key[1] for key in picked):
            notes += _said_choice(folder, row, picked)
    return tuple(notes)


def _counts(folder: StudyFolder, table: PlannedTable) -> dict[str, tuple[int, int]]:
    """How many settings each row had to choose from where it had the fewest, and how many were planned."""
    counts: dict[str, tuple[int, int]] = {}
    for (_, row, _), cells in table.trials.items():
        done = sum(folder.state(cell) is State.FINISHED for cell in cells)
        least, most = counts.get(row, (done, len(cells)))
        counts[row] = min(least, done), max(most, len(cells))
    return counts


def _said_choice(folder: StudyFolder, row: str, picked: Mapping[Key, PlannedCell]) -> list[str]:
    by_task: dict[str, list[str]] = {}
    for (task, name, _), cell in picked.items():
        tried = folder.tried(cell) if name == row else {}
        if tried:
            said = ", ".join(f"{key.removeprefix('options.')} {value}" for key, value in tried.items())
            if said not in by_task.setdefault(task, []):
                by_task[task].append(said)
    found = [f"{task}: {' or '.join(some)}" for task, some in by_task.items()]
    return [f"Chosen for {row}: {'; '.join(found)}."] if found else []
