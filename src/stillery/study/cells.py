"""The cells of a study: one run each, at an address that is a hash of everything the run depends on."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stillery.errors import ErrorList, UserError
from stillery.jobs.chosen_recipe import chosen_recipe
from stillery.jobs.config.settings import Asked, Distill, Finetune, MethodSettings, resolve, setting_names
from stillery.jobs.kinds.find import kind_of_model, kind_of_stacks
from stillery.models.family import kind_of
from stillery.study.at_hand import config_of, look_again
from stillery.study.contents import absent, address
from stillery.study.plan import AXES, TEACHER, Given, MethodPlan, Plan, TaskPlan, TeacherPlan
from stillery.study.plan_published import check_places
from stillery.study.results import Row
from stillery.study.search import Search, nested
from stillery.study.search_cells import SearchCells
from stillery.study.shapes import Shapes

__all__ = ["PlannedCell", "PlannedTable", "PlannedTeacher", "planned"]

_LISTS = ("copy_layers", "copy_encoder_layers", "copy_decoder_layers")
_TEACHERS_SEED = 0


@dataclass(frozen=True, kw_only=True)
class PlannedCell:
    """One run of a study.

    Attributes:
        name: its run folder, which says what it is and ends with the hash of all that it depends on.
        asked: the run; a student's `teacher` is still to be put in where that is a cell too.
        task: the task, as the plan calls it.
        row: the row of the table; None of a teacher.
        seed: the seed.
        trial: the settings that are tried in it, one of which is chosen.
        teacher: the cell of its teacher, if the study trains that.
        search: the search that it is a trial of; `asked` then has some values of what is searched.
        number: which trial it is, from 0.
        proposal: the file of its settings among the proposals of the study, once it is proposed.
        absent: data and models of it that are not at hand, in words; it cannot be run without them.
    """

    name: str
    asked: Asked[Any]
    task: str
    row: str | None
    seed: int
    trial: Mapping[str, Any] = field(default_factory=dict)
    teacher: str | None = None
    search: Search | None = None
    number: int = 0
    proposal: str | None = None
    absent: tuple[str, ...] = ()

    @property
    def job(self) -> str:
        """The command that would do the same."""
        return "distill" if isinstance(self.asked.run, Distill) else "finetune"

    def run(self, cells: Path, tried: Mapping[str, Any]) -> Asked[Any]:
        """The run, with the folder of its teacher and, of a trial, with the settings that are tried."""
        asked = self.asked
        if self.search is not None:
            asked = resolve(Distill, nested({**self.search.values, "seed": self.seed, **tried}))
        if self.teacher is None:
            return asked
        return replace(asked, run=replace(asked.run, teacher=str(cells / self.teacher)))


@dataclass(frozen=True, kw_only=True)
class PlannedTeacher:
    """A row of a teacher: its cell on each task, or the folder where a finished one is."""

    row: Row
    cells: Mapping[str, str]
    folders: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class PlannedTable:
    """A table: methods that are compared on equal terms.

    Attributes:
        name: what tells it from the other tables of the study; empty where there is one.
        rows: its rows; `trials` are by task, row and seed the cells that one is chosen from.
    """

    name: str
    tasks: tuple[str, ...]
    rows: tuple[Row, ...]
    teachers: tuple[PlannedTeacher, ...]
    trials: Mapping[tuple[str, str, int], tuple[PlannedCell, ...]]


def planned(plan: Plan, *, to_run: bool = True) -> tuple[list[PlannedCell], list[PlannedTable]]:
    """Every cell of a plan, teachers first, and the tables they fill; raises all errors with their lines.

    Without `to_run` data of named tasks and models of the hub may be out of reach: such cells say what is `absent`.
    """
    look_again()
    maker = _Maker(plan, to_run)
    for line in plan.errors:
        maker.errors.add(line)
    tables = list(maker.tables())
    rows = {table.name: [one.name for one in (*table.rows, *(each.row for each in table.teachers))] for table in tables}
    check_places(plan.published, rows, lambda place, line: maker.errors.add(f"{plan.where(*place)}: {line}"))
    if maker.errors.lines:
        raise UserError(*sorted(maker.errors.lines, key=_line_of))
    return list(maker.cells.values()), tables


def _line_of(error: str) -> int:
    found = re.search(r":(\d+): ", error)
    return int(found[1]) if found else 0


class _Maker:
    """Makes the cells of a plan; equal ones, such as the teacher of several tables, are made once."""

    def __init__(self, plan: Plan, to_run: bool) -> None:
        self.plan, self.to_run, self.errors = plan, to_run, ErrorList()
        self.search = SearchCells(plan, self.errors, self._cell)
        self.cells: dict[str, PlannedCell] = {}
        self.shapes = Shapes(self._where, self.errors)

    def tables(self) -> Iterator[PlannedTable]:
        """The tables, one for each combination of values that are not varied within a table."""
        plan = self.plan
        axes = [
            (name, value, place, shared)
            for shared, given in ((True, plan.shared), (False, plan.student))
            for name, (value, place) in given.items()
            if name in AXES and name not in plan.vary and _several(name, value)
        ]
        for name, (value, place) in plan.shared.items():
            if (_several(name, value) or isinstance(value, dict)) and name not in AXES:
                is_what = "list" if isinstance(value, list) else "range"
                self._wrong(place, f"{name} is a {is_what}: put what is to be chosen from under [student]")
        teachers = [plan.teachers] if TEACHER in plan.vary else [(one,) for one in plan.teachers]
        for combination in itertools.product(*(value for _, value, _, _ in axes)):
            fixed = {
                (name, shared): (one, place) for (name, _, place, shared), one in zip(axes, combination, strict=True)
            }
            for some in teachers:
                said = [_words(name, value) for (name, _), (value, _) in fixed.items()]
                said += [some[0].name] if len(teachers) > 1 else []
                yield self._table(", ".join(said), fixed, some)

    def _table(
        self, name: str, fixed: Mapping[tuple[str, bool], tuple[Any, tuple[str, ...]]], some: Sequence[TeacherPlan]
    ) -> PlannedTable:
        plan = self.plan
        shared = {**plan.shared, **{key: pair for (key, common), pair in fixed.items() if common}}
        student = {**plan.student, **{key: pair for (key, common), pair in fixed.items() if not common}}
        teachers = [self._teacher(one, shared) for one in some]
        rows: dict[str, Row] = {}
        trials: dict[tuple[str, str, int], tuple[PlannedCell, ...]] = {}
        for one, taught in zip(some, teachers, strict=True):
            for method in plan.methods:
                for varied in _combinations(student | dict(method.settings), lambda key: key in plan.vary):
                    given = {**student, **method.settings, **varied}
                    said = [_words(key, value) for key, (value, _) in varied.items()]
                    said += [one.name] if len(some) > 1 else []
                    label = f"{method.name} ({', '.join(said)})" if said else method.name
                    for task in plan.tasks:
                        row, found = self._row(label, shared | given, method, task, one, taught)
                        rows.setdefault(label, row)
                        trials |= {(task.name, label, seed): cells for seed, cells in found.items()}
        return PlannedTable(
            name=name, tasks=tuple(task.name for task in plan.tasks), rows=tuple(rows.values()),
            teachers=tuple(teachers), trials=trials,
        )  # fmt: skip

    def _teacher(self, one: TeacherPlan, shared: Given) -> PlannedTeacher:
        cells, folders = {}, {}
        for task in self.plan.tasks:
            if one.name in task.teachers:
                folders[task.name] = task.teachers[one.name]
                continue
            given = {**shared, **task.settings, **one.settings, **one.by_task.get(task.name, {})}
            seed = given.pop("seed", (_TEACHERS_SEED, ()))
            cell = self._cell(Finetune, {**given, "seed": seed}, task, None, {})
            if cell is not None:
                self.shapes.look(cell.asked, given, str(one.settings.get("model", ("",))[0]))
                self.cells.setdefault(cell.name, cell)
                cells[task.name] = cell.name
        # One teacher is called by its model; several have names of their own.
        model = Path(str(one.settings.get("model", ("",))[0])).name
        alone = len(self.plan.teachers) == 1 and model and model not in [method.name for method in self.plan.methods]
        row = Row(name=model if alone else one.name, teacher=True, seeds=(_TEACHERS_SEED,))
        return PlannedTeacher(row=row, cells=cells, folders=folders)

    def _row(
        self, label: str, given: Given, method: MethodPlan, task: TaskPlan, one: TeacherPlan, taught: PlannedTeacher
    ) -> tuple[Row, dict[int, tuple[PlannedCell, ...]]]:
        """A row, and its cells on one task."""
        own = {**task.settings, **self.plan.student_by_task.get(task.name, {}), **method.by_task.get(task.name, {})}
        given = self._equal({**given, **own}, one, taught.folders.get(task.name))
        teacher, found, folder = taught.cells.get(task.name), {}, taught.folders.get(task.name)
        model = folder or str(one.settings.get("model", ("",))[0])
        given = {**given, TEACHER: (folder or "of this study", ("tasks",))}
        if self.plan.search == "tpe":
            found = self.search.of_row(label, given, task, teacher)
            for proposed in next(iter(found.values()), ())[:1]:
                self.shapes.look(proposed.asked, given, model, trained=folder is not None)
        for seed in self.plan.seeds if self.plan.search == "grid" else ():
            cells = []
            for tried in _combinations(self.search.without_ranges(given), lambda key: True):
                settings = {**given, **tried, "seed": (seed, ("seeds",))}
                trial = {key: value for key, (value, _) in tried.items()}
                cell = self._cell(Distill, settings, task, label, trial, teacher)
                cells += [cell] if cell is not None else []
                if cell is not None and seed == self.plan.seeds[0]:
                    self.shapes.look(cell.asked, settings, model, trained=folder is not None)
                if len(trial) and "holdout" not in given:
                    place = next(iter(tried.values()))[1]
                    self._wrong(
                        place, "several values are tried, and without a holdout nothing may choose one: set holdout"
                    )
            found[seed] = tuple(cells)
        self.cells |= {cell.name: cell for cells in found.values() for cell in cells if cell.name not in self.cells}
        run = next((cell.asked.run for cells in found.values() for cell in cells), None)
        return Row(name=label, start=_start(run), head=run.student.head if run else None), found

    def _equal(self, given: Given, one: TeacherPlan, folder: str | None) -> dict[str, Any]:
        """The settings with start and head said where the methods would each take their own, unless that is varied."""
        found, vary = dict(given), self.plan.vary
        kind = self._kind(one, folder)
        starts = ("init", "copy_layers", "copy_encoder_layers", "copy_decoder_layers")
        if "init" not in vary and found.keys().isdisjoint(starts):
            found["init"] = ("first" if kind is None else kind.start, ("student",))
        if "head" not in vary and "head" not in found and (kind is None or kind.layouts == ("encoder",)):
            found["head"] = ("fresh", ("student",))
        return found

    def _kind(self, one: TeacherPlan, folder: str | None) -> Any:
        model = folder or one.settings.get("model", (None,))[0]
        try:
            if folder:
                return kind_of_model(folder)
            config = config_of(str(model))
            return None if config is None else kind_of_stacks(kind_of(config), _no_data())
        except UserError:
            # What is wrong with the model is reported where it is loaded.
            return None

    def _cell(
        self, kind: type[Any], given: Given, task: TaskPlan, row: str | None, trial: Mapping[str, Any],
        teacher: str | None = None,
    ) -> PlannedCell | None:  # fmt: skip
        values = nested({"job": kind.__name__.lower(), **{name: value for name, (value, _) in given.items()}})
        asked = resolve(kind, values, lambda name: f"{self._where(given, name)}: {name}")
        errors = asked.gathered()
        if kind is Distill and asked.clear(*setting_names(MethodSettings)):
            try:
                chosen_recipe(asked.run.method, None)
            except UserError as error:
                for line in error.lines:
                    errors.add(f"{self._where(given, 'method')}: {line}")
        for line in errors.lines:
            self.errors.add(line)
        if errors.lines:
            return None
        return self._addressed(asked, task, row, trial, teacher, given) if task.there else None

    def _addressed(
        self, asked: Asked[Any], task: TaskPlan, row: str | None, trial: Mapping[str, Any], teacher: str | None,
        given: Given,
    ) -> PlannedCell | None:  # fmt: skip
        try:
            lacking = () if self.to_run else absent(asked.run)
            if teacher is not None and not self.to_run:
                lacking = tuple(dict.fromkeys((*self.cells[teacher].absent, *lacking)))
            ending = address(asked.run, teacher, whole=not lacking)
        except UserError as error:
            for line in error.lines:
                self.errors.add(f"{self._where(given, 'model' if row is None else 'data')}: {line}")
            return None
        seed = asked.run.training.seed
        what = f"{task.name}-{row or 'teacher'}-seed{seed}"
        readable = re.sub(r"[^\w.+-]+", "-", what).strip("-.")[:60]
        return PlannedCell(
            name=f"{readable}-{ending}", asked=asked, task=task.name, row=row, seed=seed, trial=dict(trial),
            teacher=teacher, absent=lacking,
        )  # fmt: skip

    def _where(self, given: Given, name: str) -> str:
        return self.plan.where(*given.get(name, (None, ("tasks",)))[1])

    def _wrong(self, place: Sequence[str], line: str) -> None:
        self.errors.add(f"{self.plan.where(*place)}: {line}")


def _no_data() -> Any:
    from stillery.jobs.config.settings import DataSettings

    return DataSettings()


def _several(name: str, value: Any) -> bool:
    """Whether there are several values; layers to copy are a list in themselves."""
    return isinstance(value, list) and (name not in _LISTS or any(isinstance(one, list) for one in value))


def _combinations(given: Given, wanted: Any) -> Iterator[dict[str, tuple[Any, tuple[str, ...]]]]:
    """One value each of all settings that have several, in every combination."""
    named = [(name, pair) for name, pair in given.items() if _several(name, pair[0]) and wanted(name)]
    for values in itertools.product(*(pair[0] for _, pair in named)):
        yield {name: (value, pair[1]) for (name, pair), value in zip(named, values, strict=True)}


def _words(name: str, value: Any) -> str:
    shown = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return f"{name.removeprefix('options.').replace('_', ' ')} {shown}"


def _start(run: Any) -> str | None:
    """The start of a student, in words."""
    if run is None:
        return None
    student = run.student
    layers = student.copy_layers or student.copy_decoder_layers or student.copy_encoder_layers
    name = f"layers {','.join(map(str, layers))}" if layers else student.init
    return f"{name} of {Path(student.init_from).name}" if student.init_from else name
