"""What a study tried before it chose: the settings of every trial, and how it scored on what was held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from stillery.study.cells import PlannedCell, PlannedTable
from stillery.study.folder import StudyFolder
from stillery.study.results import Key

__all__ = ["Tried", "tried_in"]


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One combination of settings of a row, tried on a task.

    Attributes:
        task, row: what it was tried for.
        number: which trial it is, from 1.
        settings: the values that were tried; none of a trial that is not proposed yet.
        score: its mean on what was held out, over the seeds that are finished; None where none is.
        seeds: how many seeds are finished.
        chosen: whether the table has it.
        seed: the seed that it was tried for, where each seed has a search of its own.
    """

    task: str
    row: str
    number: int
    settings: Mapping[str, Any]
    score: float | None
    seeds: int
    chosen: bool
    seed: int | None = None


def tried_in(
    folder: StudyFolder,
    table: PlannedTable,
    picked: Mapping[Key, PlannedCell],
    held_out: Callable[[PlannedCell], float | None],
    *,
    each: bool,
) -> tuple[Tried, ...]:
    """Return the trials of a table, in the order of its tasks and rows; `each` seed chooses by itself, or all do."""
    found: list[Tried] = []
    for task in table.tasks:
        for row in table.rows:
            by_seed = {
                seed: cells
                for (of, name, seed), cells in table.trials.items()
                if (of, name) == (task, row.name) and len(cells) > 1
            }
            groups: list[tuple[int | None, list[Sequence[PlannedCell]]]] = (
                [(seed, [cells]) for seed, cells in by_seed.items()]
                if each
                else [(None, list(by_seed.values()))] if by_seed else []
            )  # fmt: skip
            for seed, searches in groups:
                for number, cells in enumerate(zip(*searches, strict=False), 1):
                    scores = [score for cell in cells if (score := held_out(cell)) is not None]
                    found.append(
                        Tried(
                            task=task, row=row.name, number=number, settings=folder.tried(cells[0]),
                            score=fmean(scores) if scores else None, seeds=len(scores), seed=seed,
                            chosen=any(picked.get((task, row.name, cell.seed)) is cell for cell in cells),
                        )
                    )  # fmt: skip
    return tuple(found)
