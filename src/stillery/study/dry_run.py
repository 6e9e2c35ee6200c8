"""What a study would do: every cell with its steps, and how long all of it takes by a few steps that are measured."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.jobs.config.settings import Distill
from stillery.jobs.distill import run_distill
from stillery.jobs.finetune import run_finetune
from stillery.jobs.from_python import FromPython
from stillery.jobs.holdout import held_out
from stillery.jobs.kinds.find import kind_of_model, kind_to_train
from stillery.jobs.warm import kept_warm, warm
from stillery.progress import quiet
from stillery.study.cells import PlannedCell
from stillery.study.folder import State, StudyFolder
from stillery.train.learning_rate import run_steps

__all__ = ["Line", "dry_run"]

_MEASURED = 5
_STEPS = {"epochs", "max_steps", "batch_size", "accumulate", "patience"}


@dataclass(frozen=True, kw_only=True)
class Line:
    """A cell of a dry run: its optimiser steps over all stages, the seconds it will take, and how far it is.

    Where its data or models are not at hand, steps are known only of a plan that gives them, and seconds never.
    `tried` are the settings of a trial as far as they are proposed; `most` says that it may have fewer steps.
    """

    cell: PlannedCell
    steps: int | None
    seconds: float | None
    state: State
    tried: Mapping[str, Any] = field(default_factory=dict)
    most: bool = False


def dry_run(folder: StudyFolder, cells: Sequence[PlannedCell]) -> list[Line]:
    """Every cell with its steps and its seconds in one worker; trains a few steps in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="stillery-") as place, quiet(), kept_warm():
        measure = _Measure(Path(place), {cell.name: cell for cell in cells}, folder)
        found = []
        for cell in cells:
            if cell.absent:
                steps = cell.asked.run.training.max_steps
                found.append(Line(cell=cell, steps=steps, seconds=None, state=State.OPEN))
                continue
            steps, state = measure.steps(cell), folder.state(cell)
            step, rest = (0.0, 0.0) if state is State.FINISHED else measure.seconds(cell)
            most = cell.search is not None and not _STEPS.isdisjoint(cell.search.space)
            seconds, tried = rest + steps * step, folder.tried(cell)
            found.append(Line(cell=cell, steps=steps, seconds=seconds, state=state, tried=tried, most=most))
    return found


class _Measure:
    """Measures the steps of each shape of student once."""

    def __init__(self, place: Path, cells: dict[str, PlannedCell], folder: StudyFolder) -> None:
        self.place, self.cells, self.folder = place, cells, folder
        self._seconds: dict[Any, tuple[float, float]] = {}
        self._teachers: dict[str, str] = {}
        self._count = 0

    def steps(self, cell: PlannedCell) -> int:
        """The optimiser steps of a cell, over all stages."""
        run = cell.asked.run
        examples = warm(("examples", run.inputs, run.condition), lambda: self._examples(cell))
        return run_steps(
            run.training.epochs, examples, run.training.batch_size * run.training.accumulate, run.training.max_steps
        )

    def _examples(self, cell: PlannedCell) -> int:
        run = cell.asked.run
        model = run.model if not isinstance(run, Distill) else self._source(cell)
        kind = kind_to_train(model, run.data) if cell.job == "finetune" else kind_of_model(model, run.data)
        read = warm(("read", run.inputs), lambda: kind.read(run.inputs, None))
        under, record = kind.under(run.condition, read)
        return len(held_out(run.condition, under, record, kind)[0].splits.train)

    def _source(self, cell: PlannedCell) -> str:
        """A model like the teacher of a cell, whether that is trained already or not."""
        if cell.teacher is None:
            return str(cell.asked.run.teacher)
        return str(self.cells[cell.teacher].asked.run.model)

    def seconds(self, cell: PlannedCell) -> tuple[float, float]:
        """Seconds of a step of a cell, and of everything else in it."""
        run = cell.asked.run
        window = run.training.batch_size * run.training.accumulate
        shape: tuple[Any, ...] = (cell.job, run.data.max_length, window, cell.task)
        if isinstance(run, Distill):
            shape = (*shape, self._source(cell), run.student.layers, run.student.width, cell.row)
        else:
            shape = (*shape, run.model)
        if shape not in self._seconds:
            self._seconds[shape] = self._measured(cell)[:2]
        return self._seconds[shape]

    def _measured(self, cell: PlannedCell) -> tuple[float, float, str]:
        run = cell.asked.run
        steps = max(1, min(_MEASURED, run.training.max_steps or _MEASURED))
        run = dataclasses.replace(run, training=dataclasses.replace(run.training, max_steps=steps, keep="last"))
        if isinstance(run, Distill):
            run = dataclasses.replace(run, teacher=self._teacher(cell))
        self._count += 1
        out = self.place / str(self._count)
        times: list[float] = []
        began = time.perf_counter()
        job = run_distill if isinstance(run, Distill) else run_finetune
        given = FromPython(on_step=lambda step, numbers: times.append(time.perf_counter()))
        job(dataclasses.replace(cell.asked, run=run), out, given=given)
        whole = time.perf_counter() - began
        between = sorted(later - earlier for earlier, later in pairwise(times))
        step = between[len(between) // 2] if between else whole
        return step, max(whole - steps * step, 0.0), str(out)

    def _teacher(self, cell: PlannedCell) -> str:
        """The teacher of a cell; one that is not trained yet is trained for a few steps."""
        if cell.teacher is None:
            return str(cell.asked.run.teacher)
        teacher = self.cells.get(cell.teacher)
        if teacher is None:
            raise UserError(f"{cell.name}: its teacher {cell.teacher} is not among the cells")
        if self.folder.state(teacher) is State.FINISHED:
            return str(self.folder.run(teacher))
        if teacher.name not in self._teachers:
            step, rest, out = self._measured(teacher)
            self._teachers[teacher.name] = out
            run = teacher.asked.run
            window = run.training.batch_size * run.training.accumulate
            self._seconds[teacher.job, run.data.max_length, window, teacher.task, run.model] = (step, rest)
        return self._teachers[teacher.name]
