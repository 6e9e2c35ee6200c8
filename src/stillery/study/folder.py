"""The folder of a study: its plan, run folders, claims, failures, and what of a damaged run was set aside."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from stillery.atomic import atomic_file
from stillery.errors import UserError
from stillery.jobs.output_paths import check_folder
from stillery.jobs.run_folder import finished
from stillery.study.cells import PlannedCell
from stillery.study.plan import Plan
from stillery.study.search import RANDOM, proposed, settle

__all__ = ["State", "StudyFolder", "held_out_score"]


class State(StrEnum):
    """How far a cell is."""

    FINISHED = "finished"
    FAILED = "failed"
    BLOCKED = "blocked"
    OPEN = "open"


@dataclass(frozen=True)
class StudyFolder:
    """Where everything of a study is.

    `cells/` has the run folders, `failed/` why a cell has none, `claims/` who is at which, `trials/` what searches try,
    `quarantine/` what was damaged, `tables/` the result.
    """

    path: Path

    @property
    def cells(self) -> Path:
        """The run folders."""
        return self.path / "cells"

    @property
    def trials(self) -> Path:
        """The proposals of searches."""
        return self.path / "trials"

    @property
    def claims(self) -> Path:
        """The claims of workers."""
        return self.path / "claims"

    def begin(self, plan: Plan, cells: Sequence[PlannedCell]) -> None:
        """Make the folder for a plan; one that holds another plan is refused, unless this one only adds cells."""
        check_folder(self.path, "--out")
        names, file = sorted(cell.name for cell in cells), self.path / "cells.json"
        if file.is_file():
            gone = sorted(set(self._planned(file)) - set(names))
            if gone:
                raise UserError(
                    f"--out {self.path} holds another study: {len(gone)} of its cells are not in {plan.file}, such as "
                    f"{gone[0]}; give another folder, or a plan that only adds to {self.path / 'plan.toml'}"
                )
        elif self.path.is_dir() and any(self.path.iterdir()):
            raise UserError(f"--out {self.path} is not empty and holds no study: give another folder")
        if not file.is_file() or self._planned(file) != names:
            _write(self.path / "plan.toml", plan.text)
            _write(file, json.dumps(names, indent=1) + "\n")

    def _planned(self, file: Path) -> list[str]:
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{file}: cannot be read ({error}); copy it again, or give another --out") from None
        return list(map(str, found))

    def run(self, cell: PlannedCell | str) -> Path:
        """The run folder of a cell."""
        return self.cells / (cell if isinstance(cell, str) else cell.name)

    def state(self, cell: PlannedCell) -> State:
        """How far a cell is; a student is blocked whose teacher failed."""
        if finished(self.run(cell)):
            return State.FINISHED
        if self.failure(cell.name) is not None:
            return State.FAILED
        if cell.teacher is not None and self.failure(cell.teacher) is not None:
            return State.BLOCKED
        return State.OPEN

    def ready(self, cell: PlannedCell) -> bool:
        """Whether all is there that a cell needs: its teacher and, of a trial, the trials it is proposed from."""
        if cell.teacher is not None and not finished(self.run(cell.teacher)):
            return False
        if cell.search is None or cell.number < RANDOM or (self.trials / (cell.proposal or "")).is_file():
            return True
        before = (name for names in cell.search.trials[: cell.number] for name in names)
        return all(finished(self.run(name)) or self.failure(name) is not None for name in before)

    def tried(self, cell: PlannedCell) -> Mapping[str, Any]:
        """The settings that are tried in a cell; none of a trial that is not proposed yet."""
        found = cell.trial if cell.proposal is None else proposed(self.trials / cell.proposal)
        if found is None and finished(self.run(cell)):
            # What was proposed is lost, and is made again from the same scores.
            return self.settled(cell)
        return found or {}

    def settled(self, cell: PlannedCell) -> Mapping[str, Any]:
        """The settings that are tried in a cell that is ready; a trial is proposed by whoever comes first."""
        if cell.search is None:
            return cell.trial
        scores = [self._score(names) for names in cell.search.trials[: cell.number]] if cell.number >= RANDOM else []
        return settle(self.trials, cell.search, cell.number, scores)

    def _score(self, names: Sequence[str]) -> float | None:
        """What a trial scored on what was held out, the mean over its seeds; None if one of them failed."""
        there = []
        for name in names:
            # Of one that failed there is nothing to read.
            with suppress(OSError, ValueError, KeyError):
                score = held_out_score(self.metrics(name))
                there += [score] if score is not None and math.isfinite(score) else []
        return sum(there) / len(there) if len(there) == len(names) else None

    def failure(self, name: str) -> str | None:
        """Why a cell failed, in one line; None of one that has not."""
        try:
            found = json.loads((self.path / "failed" / f"{name}.json").read_text(encoding="utf-8"))
            return str(found["reason"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            return "it failed, and why cannot be read any more"

    def fail(self, name: str, reason: str, details: str = "") -> None:
        """Record that a cell failed."""
        record = {"reason": " ".join(reason.split()), "details": details.splitlines()}
        _write(self.path / "failed" / f"{name}.json", json.dumps(record, indent=1) + "\n")

    def retry(self, name: str) -> None:
        """Forget that a cell failed."""
        (self.path / "failed" / f"{name}.json").unlink(missing_ok=True)

    def damage(self, cell: PlannedCell) -> str | None:
        """What is wrong with the results of a finished cell, if anything is."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        run = self.run(cell)
        try:
            metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
            if not isinstance(metrics, dict) or not metrics.get("metrics"):
                return "metrics.json holds no metrics"
        except (OSError, ValueError):
            return "metrics.json is not readable"
        try:
            rows = pq.read_metadata(run / "predictions.parquet").num_rows
        except (OSError, pa.ArrowException):
            return "predictions.parquet is not readable"
        return None if rows == metrics.get("examples") else "predictions.parquet is of other examples than metrics.json"

    def set_aside(self, name: str, why: str) -> None:
        """Move a run folder out of the way, to `quarantine/`, with a line that says why."""
        folder = self.path / "quarantine"
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            place = folder / f"{name}-{number}"
            if not place.exists():
                # Another process may have done so.
                with suppress(FileNotFoundError):
                    self.run(name).rename(place)
                    _write(folder / f"{place.name}.txt", f"{name}: {why}; it is set aside in {place} and made again\n")
                return
        raise UserError(f"{folder} holds 10,000 copies of {name}: look what damages it, and empty the folder")

    def said_aside(self) -> dict[str, str]:
        """The lines about everything that was set aside, by file."""
        return {path.name: path.read_text(encoding="utf-8").strip() for path in self._lines()}

    def _lines(self) -> list[Path]:
        return sorted((self.path / "quarantine").glob("*.txt"))

    def metrics(self, name: str) -> dict[str, Any]:
        """The metrics of a finished cell."""
        found: dict[str, Any] = json.loads((self.run(name) / "metrics.json").read_text(encoding="utf-8"))
        return found


def held_out_score(metrics: Mapping[str, Any]) -> float | None:
    """The score of the weights that a run kept, on what was held out."""
    training = metrics["training"]
    kept = training["dev_best"] if training["kept_step"] != training["steps"] else training["dev_last"]
    return float(next(iter(kept.values()))) if kept else None


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as part:
        part.write_text(text, encoding="utf-8")
