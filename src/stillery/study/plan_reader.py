"""Reads a plan from the values of its file, and collects everything that is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillery import methods
from stillery.data.tasks.generation import GENERATION_TASKS
from stillery.data.tasks.glue import TASKS
from stillery.errors import ErrorList, nearest
from stillery.jobs.config.other_names import not_a_setting
from stillery.jobs.config.settings import (
    ConditionSettings,
    DataSettings,
    GenerationSettings,
    MethodSettings,
    RestartSettings,
    SearchSettings,
    StudentSettings,
    setting_names,
)
from stillery.study.plan import AXES, TEACHER, Given, MethodPlan, Plan, TaskPlan, TeacherPlan
from stillery.study.plan_lines import Lines
from stillery.study.plan_published import published_rows
from stillery.train.settings import Storing, Training

__all__ = ["PlanReader"]

_SHARED = [
    name
    for group in (DataSettings, GenerationSettings, SearchSettings, ConditionSettings, Training)
    for name in setting_names(group)
]
_OWN = (
    "title", "tasks", "seeds", "vary", "select", "search", "trials", "baselines", "strategies", "margin", "published",
    "teacher", "teachers", "student", "methods",
)  # fmt: skip
_STUDENT = [*_SHARED, *setting_names(StudentSettings), *setting_names(Storing)]
_METHOD = setting_names(MethodSettings)

SELECT = ("mean", "each")
SEARCH = ("grid", "tpe")
HOLDOUT = 0.1
"""The share of the training split that chooses, unless the plan says another."""


class PlanReader:
    """Reads the parts of a plan, and collects what is wrong with them."""

    def __init__(self, file: Path, text: str, values: dict[str, Any], recipes: Sequence[str] = ()) -> None:
        self.file, self.text, self.values, self.lines = file, text, values, Lines(text)
        self.recipes = recipes
        self.errors = ErrorList()
        self.on_tasks: list[tuple[tuple[str, ...], str]] = []

    def plan(self) -> Plan:
        """The plan, with what is wrong left out and noted."""
        top = self.values
        for name in top:
            if name not in _OWN and name not in _SHARED:
                self._wrong((name,), not_a_setting(name, [*_OWN, *_SHARED]))
        shared = self._settings({name: top[name] for name in _SHARED if name in top}, (), _SHARED)
        vary = self._texts("vary", [*_STUDENT, TEACHER])
        named = self._methods(vary)
        teachers = self._teachers()
        student = dict(self._table("student"))
        students = self._by_task(student, ("student",), _STUDENT, axes=False)
        read: dict[str, Any] = {
            "title": self._text("title") or self.file.stem, "tasks": self._tasks(teachers), "teachers": teachers,
            "methods": named, "shared": self._held_out(shared), "seeds": self._seeds(), "vary": vary,
            "student": self._settings(student, ("student",), _STUDENT), "student_by_task": students,
            "select": self._choice("select", SELECT), "search": self._choice("search", SEARCH),
            "trials": self._trials(), "strategies": self._texts("strategies"),
            "baselines": self._texts("baselines") if "baselines" in top else None, "margin": self._margin(),
        }  # fmt: skip
        names = [task.name for task in read["tasks"]]
        read["published"] = published_rows(self.values.get("published", []), names, self._wrong)
        for place, name in self.on_tasks:
            if name not in names:
                self._wrong(place, f"no task {name!r} in this plan; {nearest(name, names)}")
        return Plan(file=self.file, text=self.text, lines=self.lines, errors=tuple(self.errors.lines), **read)

    def _wrong(self, place: Sequence[str], line: str) -> None:
        self.errors.add(f"{self.file}:{self.lines.of(*place)}: {line}")

    def _table(self, name: str, *, needed: bool = False) -> dict[str, Any]:
        value = self.values.get(name, {})
        if needed and name not in self.values:
            self._wrong((), f"there is no [{name}]: add one")
        if not isinstance(value, dict):
            self._wrong((name,), f"{name} is {value!r}: make it a table, [{name}]")
            return {}
        return value

    def _text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            self._wrong((name,), f"{name} is {value!r}: give a text")
            return None
        return value

    def _texts(self, name: str, known: Sequence[str] | None = None) -> tuple[str, ...]:
        value = self.values.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self._wrong((name,), f"{name} is {value!r}: give a list of texts")
            return ()
        for one in value:
            if known is not None and one not in known:
                self._wrong((name,), f"{name}: {not_a_setting(one, known)}")
        return tuple(value)

    def _choice(self, name: str, choices: Sequence[str]) -> str:
        value = self.values.get(name, choices[0])
        if value not in choices:
            self._wrong((name,), f"{name} is {value!r}: choose from {', '.join(choices)}")
        return str(value)

    def _margin(self) -> float | None:
        value = self.values.get("margin")
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value > 0):
            return None if value is None else float(value)
        self._wrong(("margin",), f"margin is {value!r}: give a number of points above 0")
        return None

    def _trials(self) -> int:
        value, search = self.values.get("trials"), self.values.get("search", SEARCH[0])
        if value is None and search == "tpe":
            self._wrong(("search",), "search = 'tpe' tries as many settings as trials says: give trials = 10, say")
        elif value is not None and search == SEARCH[0]:
            self._wrong(("trials",), "trials is of search = 'tpe'; a grid tries every value")
        elif value is not None and (type(value) is not int or value < 2):
            self._wrong(("trials",), f"trials is {value!r}: give a whole number from 2 on")
        else:
            return value or 0
        return 0

    def _seeds(self) -> tuple[int, ...]:
        value = self.values.get("seeds", [0])
        good = isinstance(value, list) and value and all(type(one) is int and one >= 0 for one in value)
        if not good or len(set(value)) < len(value):
            self._wrong(("seeds",), f"seeds is {value!r}: give a list of different whole numbers from 0 on")
            return (0,)
        return tuple(value)

    def _held_out(self, shared: Given) -> Given:
        """Choosing on a tenth of the training split is the default; `holdout = 0` turns it off."""
        value, place = shared.get("holdout", (HOLDOUT, ()))
        kept = {name: pair for name, pair in shared.items() if name != "holdout"}
        return kept if value in (0, False) else {**kept, "holdout": (value, place)}

    def _settings(self, table: Mapping[str, Any], place: tuple[str, ...], known: Sequence[str]) -> dict[str, Any]:
        """The settings of a table with their places; those that are no settings are noted."""
        found = {}
        for name, value in table.items():
            if name in known:
                found[name] = (self._in_full(name, value), (*place, name))
            else:
                self._wrong((*place, name), not_a_setting(name, known))
        return found

    def _by_task(
        self, table: dict[str, Any], place: tuple[str, ...], known: Sequence[str], *, axes: bool = True
    ) -> dict[str, Given]:
        """Take the settings of single tasks, `[student.tasks.rte]`, out of a table; without `axes` lists are tried."""
        tables, place = table.pop("tasks", {}), (*place, "tasks")
        if not self._are_tables(tables, place):
            return {}
        found: dict[str, Given] = {name: self._settings(one, (*place, name), known) for name, one in tables.items()}
        for given in found.values():
            for key, (value, where) in given.items():
                if isinstance(value, list) and not axes and key in AXES:
                    self._wrong(where, f"{key} is a list, which makes tables of all tasks: put it under [student]")
        return found

    def _are_tables(self, tables: Any, place: tuple[str, ...]) -> bool:
        """Whether these are tables by task; their names are looked at when all tasks are known."""
        if not isinstance(tables, dict) or not all(isinstance(one, dict) for one in tables.values()):
            self._wrong(place, f"tasks is {tables!r}: make a table for each task, [{'.'.join(place)}.rte]")
            return False
        self.on_tasks += [((*place, name), name) for name in tables]
        return True

    def _in_full(self, name: str, value: Any) -> Any:
        """A file or folder from the plan's own folder on."""
        paths = ("data", "data_dir", "ild_data", "init", "init_from", "ild_teacher", "model")
        if name not in paths or not isinstance(value, str):
            return value
        path = self.file.parent / Path(value).expanduser()
        return os.path.normpath(path.absolute()) if path.exists() else value

    def _tasks(self, teachers: Sequence[TeacherPlan]) -> tuple[TaskPlan, ...]:
        listed = self.values.get("tasks")
        if not isinstance(listed, list) or not listed:
            self._wrong(("tasks",), "tasks is not a list: name tasks or files, tasks = ['rte', 'reviews.csv']")
            return ()
        found = [self._task(one, ("tasks", str(at)), teachers) for at, one in enumerate(listed)]
        for at, one in enumerate(found):
            if one.name in [other.name for other in found[:at]]:
                self._wrong(("tasks", str(at)), f"task {one.name} appears twice: give one another name")
        return tuple(found)

    def _task(self, given: Any, place: tuple[str, ...], teachers: Sequence[TeacherPlan]) -> TaskPlan:
        table = dict(given) if isinstance(given, dict) else {"name": given}
        name, own = table.pop("name", None), table.pop(TEACHER, None)
        name = name if name is not None else table.get("task") or Path(str(table.get("data", ""))).name
        if not isinstance(name, str) or not name:
            self._wrong(place, f"task {given!r}: give a name, or a table with name and data")
            name = "?"
        if not table.keys() & {"task", "data"}:
            known = name in TASKS or name in GENERATION_TASKS
            table["task" if known else "data"] = name
        settings = self._settings(table, place, _SHARED)
        before = len(self.errors.lines)
        if {"task", "data"} <= settings.keys():
            self._wrong(place, f"task {name} has both task and data: give one")
            del settings["data"]
        task, data = (settings.get(key, (None,))[0] for key in ("task", "data"))
        if isinstance(task, str) and task not in TASKS and task not in GENERATION_TASKS:
            self._wrong(place, f"no task {task!r}; {nearest(task, [*TASKS, *GENERATION_TASKS])}")
        if isinstance(data, str) and not Path(data).exists():
            hint = nearest(data, [*TASKS, *GENERATION_TASKS])
            known_tasks = f"; if it is a task: {hint}" if "did you" in hint else ""
            self._wrong(place, f"{data}: no such file or folder{known_tasks}")
        there = len(self.errors.lines) == before
        folders = (
            own if isinstance(own, dict) else {} if own is None else dict.fromkeys((one.name for one in teachers), own)
        )
        return TaskPlan(
            name=Path(name).stem if Path(name).suffix else Path(name).name,
            settings=settings,
            there=there,
            teachers=self._folders(folders, place, teachers),
        )

    def _folders(
        self, folders: Mapping[str, Any], place: tuple[str, ...], teachers: Sequence[TeacherPlan]
    ) -> dict[str, str]:
        known, found = [one.name for one in teachers], {}
        for name, folder in folders.items():
            path = self.file.parent / Path(str(folder)).expanduser()
            if name not in known:
                self._wrong(place, f"no teacher {name!r} in this plan; {nearest(name, known)}")
            elif not isinstance(folder, str) or not path.is_dir():
                self._wrong((*place, TEACHER), f"teacher {folder!r}: no such folder")
            else:
                found[name] = os.path.normpath(path.absolute())
        return found

    def _teachers(self) -> tuple[TeacherPlan, ...]:
        several = self._table("teachers") if "teachers" in self.values else None
        tables = {TEACHER: self._table(TEACHER, needed=True)} if several is None else several
        if several is not None and TEACHER in self.values:
            self._wrong((TEACHER,), "both [teacher] and [teachers] are given: give one")
        known, found = ["model", "restarts", *_SHARED, *setting_names(RestartSettings)], []
        for name, table in tables.items():
            place = (TEACHER,) if several is None else ("teachers", name)
            if not isinstance(table, dict):
                self._wrong(place, f"teacher {name} is {table!r}: make it a table with model = ...")
                continue
            table = dict(table)
            by_task = self._by_task(table, place, known)
            settings = self._settings(table, place, known)
            for key, (value, where) in (pair for one in (settings, *by_task.values()) for pair in one.items()):
                if isinstance(value, list | dict):
                    self._wrong(where, f"{key} is {_kind(value)}: a teacher has one value; make several teachers of it")
            found.append(TeacherPlan(name=name, settings=settings, by_task=by_task))
        return tuple(found)

    def _methods(self, vary: Sequence[str]) -> tuple[MethodPlan, ...]:
        tables, found = self._table("methods", needed=True), []
        if "methods" in self.values and not tables:
            self._wrong(("methods",), "methods is empty: name one, such as [methods.kd]")
        for name, table in tables.items():
            if not isinstance(table, dict):
                self._wrong(("methods", name), f"method {name} is {table!r}: make it a table, [methods.{name}]")
                continue
            found.append(self._method(name, table, vary))
        return tuple(found)

    def _method(self, name: str, table: Mapping[str, Any], vary: Sequence[str]) -> MethodPlan:
        place, by_task, method = ("methods", name), table.get("tasks", {}), table.get("method", name)
        own = {"method": name} if table.keys().isdisjoint({"method", "recipe"}) else {}
        settings: dict[str, Any] = {key: (value, place) for key, value in own.items()}
        settings |= self._of_method(name, table, place, method, vary)
        found = {}
        if self._are_tables(by_task, (*place, "tasks")):
            for task, one in by_task.items():
                found[task] = self._of_method(name, one, (*place, "tasks", task), method, vary)
        return MethodPlan(name=name, settings=settings, by_task=found)

    def _of_method(
        self, name: str, table: Mapping[str, Any], place: tuple[str, ...], method: str, vary: Sequence[str]
    ) -> dict[str, tuple[Any, tuple[str, ...]]]:
        """The settings of a method's table, and its options under `options.NAME`."""
        options = dict(table.get("options", {}))
        known = list(methods.find(method).options) if method in methods.names() else []
        settings: dict[str, Any] = {}
        for key, value in table.items():
            if key in ("options", "tasks"):
                continue
            code = value if isinstance(value, list) else [value]
            if key == "recipe" and (unknown := [one for one in code if one not in self.recipes]):
                # Left out, so that it does not run while the rest of the plan is checked.
                for one in unknown:
                    self._wrong((*place, key), f"a plan may not start code; if you trust it, pass --recipe {one}")
                continue
            if key in _METHOD or (key in vary and key in _STUDENT):
                settings[key] = (self._in_full(key, value), (*place, key))
            elif key in known:
                options[key] = value
            elif key in _STUDENT:
                self._wrong(
                    (*place, key),
                    f"{name} alone sets {key}, and all methods of a table get the same: put it under [student], or "
                    f"compare it on purpose with vary = [{key!r}]",
                )
            else:
                self._wrong((*place, key), not_a_setting(key, [*_METHOD, *known]))
        for key, value in options.items():
            settings[f"options.{key}"] = (value, (*place, key))
        return settings


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else "a range"
