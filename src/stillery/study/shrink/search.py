"""What a search trains next: a function of what is finished, so that workers need nobody to tell them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.study.cells import PlannedCell
from stillery.study.folder import State, StudyFolder
from stillery.study.shrink.candidates import Candidate
from stillery.study.shrink.choice import Sized, contenders, finalists, recommended, to_train
from stillery.study.shrink.halves import halves
from stillery.study.shrink.measure import HALF, Basis

__all__ = ["Search", "kept_score"]


@dataclass(frozen=True, kw_only=True)
class Search:
    """The students of a search and the rule by which they are trained.

    Attributes:
        candidates: the students, from the smallest on.
        basis: what they are compared with.
        target: the score that the smallest of them is sought for; None where the best one is.
        every: whether all are trained in full.
    """

    candidates: tuple[Candidate, ...]
    basis: Basis
    target: float | None
    every: bool = False

    @property
    def cells(self) -> list[PlannedCell]:
        """Every cell that may be run, in the order in which they would be."""
        short = [one.short for one in self.candidates if one.short is not None]
        return [*short, *(one.full for one in self.candidates)]

    def wanted(self, folder: StudyFolder) -> list[PlannedCell]:
        """The cells that are needed by what is known now, those that are finished among them, the next one first."""
        short = [one.short for one in self.candidates if one.short is not None]
        if any(folder.state(cell) is State.OPEN for cell in short):
            return short
        full = {one.name: one.full for one in self.candidates}
        return [*short, *(full[one.name] for one in self.to_train(folder))]

    def to_train(self, folder: StudyFolder) -> list[Sized]:
        """The students to be trained in full, the smallest first."""
        left = self.left(folder)
        return left if self.every or self.target is None else to_train(left, self.scores(folder), self.target)

    def left(self, folder: StudyFolder) -> list[Sized]:
        """The students that the short trainings have left over; all of them where there are none."""
        students = [one.sized for one in self.candidates]
        if all(one.short is None for one in self.candidates):
            return students
        scores = self.scores(folder, short=True)
        return finalists(students, scores) if self.target is None else contenders(students, scores)

    def recommended(self, folder: StudyFolder) -> Candidate | None:
        """The student that the search comes to; None where all trainings failed."""
        found = recommended([one.sized for one in self.candidates], self.scores(folder), self.target)
        return next((one for one in self.candidates if found is not None and one.name == found.name), None)

    def scores(self, folder: StudyFolder, *, short: bool = False) -> dict[str, float | None]:
        """The scores of finished students on what chooses, by name; None of those whose training failed."""
        found: dict[str, float | None] = {}
        for one in self.candidates:
            cell = one.short if short else one.full
            if cell is None:
                continue
            state = folder.state(cell)
            if state is State.FINISHED:
                score = self._score(folder.run(cell))
                found |= {} if score is None else {one.name: score}
            elif state is not State.OPEN:
                found[one.name] = None
        return found

    def unreadable(self, folder: StudyFolder) -> list[PlannedCell]:
        """The cells that are finished, and whose scores cannot be read."""
        return [
            cell
            for cell in self.wanted(folder)
            if folder.state(cell) is State.FINISHED and self._score(folder.run(cell)) is None
        ]

    def _score(self, run: Path) -> float | None:
        """The score of a finished run; None where its results cannot be read, and are to be made again."""
        try:
            changed = (run / "metrics.json").stat().st_mtime_ns
            return _read_score(run, changed, self.basis.chooses)
        except (OSError, ValueError, KeyError, StopIteration, UserError):
            return None


@lru_cache(maxsize=1024)
def _read_score(run: Path, changed: int, chooses: str) -> float:
    metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    return halves(run, metrics).first if chooses == HALF else kept_score(metrics["training"])


def kept_score(training: dict[str, Any]) -> float:
    """The score of the weights that were kept, on what chose them."""
    kept = training["dev_best"] if training["kept_step"] != training["steps"] else training["dev_last"]
    return float(next(iter(kept.values())))
