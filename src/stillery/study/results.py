"""What a study measured: a score for each task, row of the table and seed, with predictions by example where kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from stillery.errors import ErrorList
from stillery.study.answers import Answers

__all__ = ["Cell", "Key", "Published", "Results", "Row", "Task"]

Key = tuple[str, str, int]
"""Task, row and seed of a cell, by name."""

ROUNDED = 0.01
"""How far a score may be from that of its predictions; numbers are written with four decimals."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task and the metric its models are compared by, in percent; higher is better."""

    name: str
    metric: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table: a method with its options.

    Attributes:
        name: what the table calls it; different for all rows.
        start: which layers the student started from, such as `first`.
        head: which classifier the student started with, such as `teacher`.
        teacher: whether it is a teacher, which is shown but is not among the methods that are compared.
        seeds: the seeds it was planned with, if not those of the study; a teacher may have been trained once.
        trials: how many settings it had to choose from on each task, the fewest; None if there was no choice.
    """

    name: str
    start: str | None = None
    head: str | None = None
    teacher: bool = False
    seeds: tuple[int, ...] | None = None
    trials: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """One finished or failed run: its score in percent, or why there is none. A cell that was not run is left out.

    `answers` are its predictions by example; without them only seeds can be resampled.
    """

    score: float | None = None
    failure: str | None = None
    answers: Answers | None = None


@dataclass(frozen=True, kw_only=True)
class Published:
    """A row of published numbers beside ours: where they stand, and the model and data they were measured with.

    In a study of several tables it stands in the one that it names, and in all if it names none.
    """

    name: str
    source: str
    model: str
    data: str
    scores: Mapping[str, float]
    table: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Results:
    """All scores of a study, by task, row and seed; what is not there is missing, and is never averaged over.

    Attributes:
        tasks: the columns of the table.
        rows: its rows.
        seeds: the seeds that were planned.
        cells: the runs there are.
        published: rows of published numbers, which take part in no statistics.
    """

    tasks: tuple[Task, ...]
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    cells: Mapping[Key, Cell] = field(default_factory=dict)
    published: tuple[Published, ...] = ()

    def __post_init__(self) -> None:
        errors = ErrorList()
        names = {
            "task": [one.name for one in self.tasks],
            "row": [*(one.name for one in self.rows), *(one.name for one in self.published)],
            "seed": [str(seed) for seed in self.seeds],
        }
        for kind, given in names.items():
            for name in dict.fromkeys(given):
                if given.count(name) > 1:
                    errors.add(f"{kind} {name} is there {given.count(name)} times")
        planned = {
            (task.name, row.name, seed) for task in self.tasks for row in self.rows for seed in self.planned(row)
        }
        for key, cell in self.cells.items():
            where = ", ".join((key[0], key[1], f"seed {key[2]}"))
            if key not in planned:
                errors.add(f"{where}: no such cell in this study")
            for line in _faults(cell):
                errors.add(f"{where}: {line}")
        known = {one.name for one in self.tasks}
        for one in self.published:
            for task_name in one.scores:
                if task_name not in known:
                    errors.add(f"published row {one.name}: no task {task_name} in this study")
        errors.raise_any()

    @property
    def students(self) -> tuple[Row, ...]:
        """The rows that are compared."""
        return tuple(row for row in self.rows if not row.teacher)

    @property
    def teachers(self) -> tuple[Row, ...]:
        """The rows of teachers."""
        return tuple(row for row in self.rows if row.teacher)

    def planned(self, row: Row) -> tuple[int, ...]:
        """The seeds that a row was to be run with."""
        return self.seeds if row.seeds is None else row.seeds

    def scores(self, task: str, row: Row) -> dict[int, float]:
        """The scores there are, by seed in ascending order."""
        found = {seed: self.cells.get((task, row.name, seed)) for seed in sorted(self.planned(row))}
        return {seed: cell.score for seed, cell in found.items() if cell is not None and cell.score is not None}

    def failed(self, task: str, row: Row) -> dict[int, str]:
        """Why runs failed, by seed."""
        found = {seed: self.cells.get((task, row.name, seed)) for seed in self.planned(row)}
        return {seed: cell.failure for seed, cell in found.items() if cell is not None and cell.failure is not None}

    def missing(self, task: str, row: Row) -> tuple[int, ...]:
        """The seeds that were planned and neither finished nor failed."""
        return tuple(seed for seed in self.planned(row) if (task, row.name, seed) not in self.cells)


def _faults(cell: Cell) -> list[str]:
    if (cell.score is None) == (cell.failure is None):
        return ["a cell has either a score or the reason why it has none"]
    if cell.score is None:
        return []
    if not math.isfinite(cell.score):
        return [f"the score is {cell.score}; a run without a number has failed"]
    if cell.answers is not None and abs(cell.answers.score - cell.score) > ROUNDED:
        found = f"{cell.answers.score:.4f}"
        return [f"its predictions give {found}, not the score {cell.score:.4f}; they are of another run or metric"]
    return []
