"""A plan: the tables that a study fills, read from a TOML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.jobs.config.settings import ConditionSettings, StudentSettings, setting_names
from stillery.small_files import LARGEST_TOML, parsed_toml, read_text
from stillery.study.plan_lines import Lines
from stillery.study.results import Published

__all__ = ["AXES", "TEACHER", "ByTask", "Given", "MethodPlan", "Plan", "TaskPlan", "TeacherPlan", "read_plan"]

Given = Mapping[str, tuple[Any, tuple[str, ...]]]
"""Settings: the value of each, and the place in the plan that gives it."""

ByTask = Mapping[str, Given]
"""Settings of some tasks, which take the place of those of all."""

TEACHER = "teacher"

AXES = frozenset((*setting_names(StudentSettings), *setting_names(ConditionSettings)))
"""Settings of which several values make several tables; several values of others are tried, and one is chosen."""


@dataclass(frozen=True, kw_only=True)
class TaskPlan:
    """A column of the table: a named task or a file, settings of its own, and finished teachers of it by name.

    One that is not `there` has been noted as an error; its settings are still checked.
    """

    name: str
    settings: Given
    teachers: Mapping[str, str] = field(default_factory=dict)
    there: bool = True


@dataclass(frozen=True, kw_only=True)
class TeacherPlan:
    """A teacher: the settings of its fine-tuning, or none where every task names a finished one."""

    name: str
    settings: Given
    by_task: ByTask = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MethodPlan:
    """A method with its options, and what the plan varies with it on purpose."""

    name: str
    settings: Given
    by_task: ByTask = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a study runs.

    Attributes:
        file: where it is written; settings in it that are paths are taken from its folder.
        text: the file as it is.
        lines: where in it each key stands.
        shared: settings of teachers and students alike.
        student: settings of all students; lists of them are several tables, or values to choose from.
        student_by_task: settings of all students of a task.
        vary: settings that methods of one table may differ in.
        errors: what is wrong with it so far; `cells.planned` raises it with what is wrong with the settings.
        select: whether one setting is chosen by the mean over seeds, or one for each seed.
        search: how settings are tried that have several values: `grid` or `tpe`.
        trials: how many of them `tpe` tries for each method and task.
    """

    file: Path
    text: str
    lines: Lines
    title: str
    tasks: tuple[TaskPlan, ...]
    teachers: tuple[TeacherPlan, ...]
    methods: tuple[MethodPlan, ...]
    shared: Given
    student: Given
    student_by_task: ByTask
    seeds: tuple[int, ...]
    vary: tuple[str, ...] = ()
    select: str = "mean"
    search: str = "grid"
    trials: int = 0
    baselines: tuple[str, ...] | None = None
    strategies: tuple[str, ...] = ()
    margin: float | None = None
    published: tuple[Published, ...] = ()
    errors: tuple[str, ...] = ()

    def where(self, *place: str) -> str:
        """A place in the plan, as an error begins with it."""
        return f"{self.file}:{self.lines.of(*place)}"


def read_plan(file: Path, recipes: Sequence[str] = ()) -> Plan:
    """Read a plan; what is wrong with it is in its `errors`, each with its line.

    A plan may come from somebody else: a recipe in it, which is Python code, is an error unless it is one of `recipes`.
    """
    try:
        text = read_text(file, LARGEST_TOML)
        values = parsed_toml(text)
    except FileNotFoundError:
        raise UserError(f"no such file: {file}") from None
    except UnicodeDecodeError:
        raise UserError(f"{file}: not UTF-8 text; save the file as UTF-8") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise UserError(f"{file}: not a TOML file: {error}") from None
    # It makes a plan, so it needs this module.
    from stillery.study.plan_reader import PlanReader

    return PlanReader(file, text, values, recipes).plan()
