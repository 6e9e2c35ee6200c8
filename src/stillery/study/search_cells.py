"""The cells of a search: for each row, task and seed as many trials as the plan says, whatever the method."""

from __future__ import annotations

import hashlib
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from stillery import methods
from stillery.errors import ErrorList, UserError
from stillery.jobs.config.settings import GROUPS, Distill
from stillery.setting import kind_of
from stillery.study.plan import AXES, Given, Plan, TaskPlan
from stillery.study.search import Range, Search, Space, combinations, range_of

if TYPE_CHECKING:
    from stillery.study.cells import PlannedCell

__all__ = ["SearchCells"]

_SEED = ("seeds",)


@dataclass(frozen=True)
class SearchCells:
    """Makes the trials of a plan's rows; `make` makes one cell, and notes what is wrong with its settings."""

    plan: Plan
    errors: ErrorList
    make: Callable[..., PlannedCell | None]

    def without_ranges(self, given: Given) -> dict[str, tuple[Any, tuple[str, ...]]]:
        """The settings of a row without its ranges, which a grid cannot have."""
        for name, (value, place) in given.items():
            if isinstance(value, dict):
                self._wrong(place, f"{_plain(name)} is a range, of search = 'tpe'; for a grid give a list")
        return {name: pair for name, pair in given.items() if not isinstance(pair[0], dict)}

    def of_row(
        self, label: str, given: Given, task: TaskPlan, teacher: str | None
    ) -> dict[int, tuple[PlannedCell, ...]]:
        """The trials of a row on a task, by seed."""
        if find_spec("optuna") is None:
            self._wrong(("search",), "search = 'tpe' needs the package optuna: pip install \"stillery[search]\"")
        before = len(self.errors.lines)
        space = self._space(given)
        size = combinations(space)
        if len(self.errors.lines) == before and size < self.plan.trials:
            there = f"{size:.0f} combination{'s' if size > 1 else ''} of settings"
            self._wrong(
                ("trials",),
                f"trials is {self.plan.trials}, and {label} has {there} to try: all methods get as many, so give a "
                "range under [student], such as lr = {low = 1e-5, high = 1e-4, log = true}, or fewer trials",
            )
        if space and "holdout" not in given:
            place = given[next(iter(space))][1]
            self._wrong(place, "several values are tried, and without a holdout nothing may choose one: set holdout")
        some = {name: (_one_of(name, one), given[name][1]) for name, one in space.items()}
        self._check_values(label, {**given, **some}, space, task, teacher)

        def cell(seed: int) -> PlannedCell | None:
            return self.make(Distill, {**given, **some, "seed": (seed, _SEED)}, task, label, {}, teacher)

        first = {seed: cell(seed) for seed in self.plan.seeds}
        rest = {name: value for name, (value, _) in given.items() if name not in space}
        found: dict[int, tuple[PlannedCell, ...]] = {}
        # Chosen by the mean over seeds: a trial is of all seeds, and its hash of none, so that more can be added.
        groups = [list(self.plan.seeds)] if self.plan.select == "mean" else [[seed] for seed in self.plan.seeds]
        for group in groups:
            named = cell(0 if self.plan.select == "mean" else group[0])
            cells = {seed: one for seed in group if (one := first[seed]) is not None}
            if named is not None and len(cells) == len(group):
                seed = 0 if self.plan.select == "mean" else group[0]
                found |= _trials(cells, _hash(named.name, space, self.plan.select), space, rest, self.plan.trials, seed)
        return found

    def _space(self, given: Given) -> Space:
        """What is searched, the settings of students first, so that all rows draw the same of these."""
        found: dict[str, Range | tuple[Any, ...]] = {}
        method = given.get("method", (None,))[0]
        for name in sorted(given, key=lambda one: (one.startswith("options."), one)):
            value, place = given[name]
            if isinstance(value, dict) and name in AXES:
                self._wrong(place, f"{name} is a range: several values of it make a table each, so give a list")
            elif isinstance(value, dict):
                try:
                    found[name] = range_of(_plain(name), value, _is_whole(name, value, method))
                except UserError as error:
                    self._wrong(place, str(error))
                    found[name] = Range(low=1, high=2)
            elif isinstance(value, list) and name not in AXES:
                found[name] = tuple(dict.fromkeys(value))
        return found

    def _check_values(self, label: str, given: Given, space: Space, task: TaskPlan, teacher: str | None) -> None:
        """Note what is wrong with values that are to be tried, each for itself."""
        for name, one in space.items():
            for value in (one.low, one.high) if isinstance(one, Range) else one:
                tried = {**given, name: (value, given[name][1]), "seed": (self.plan.seeds[0], _SEED)}
                self.make(Distill, tried, replace(task, there=False), label, {}, teacher)

    def _wrong(self, place: Sequence[str], line: str) -> None:
        self.errors.add(f"{self.plan.where(*place)}: {line}")


def _trials(
    cells: Mapping[int, PlannedCell], name: str, space: Space, values: Mapping[str, Any], trials: int, seed: int
) -> dict[int, tuple[PlannedCell, ...]]:
    """The cells of a search, by seed: what they are called is known before what they try."""

    def called(cell: PlannedCell, number: int) -> str:
        readable, _, ending = cell.name.rpartition("-")
        digest = hashlib.blake2b(f"{ending} {name} {number}".encode(), digest_size=5).hexdigest()
        return f"{readable}-trial{number + 1}-{digest}"

    names = tuple(tuple(called(cell, number) for cell in cells.values()) for number in range(trials))
    search = Search(name=name, space=space, values=values, trials=names, seed=seed)
    return {
        of: tuple(
            replace(cell, name=called(cell, number), search=search, number=number, proposal=search.file(number))
            for number in range(trials)
        )
        for of, cell in cells.items()
    }


def _hash(cell: str, space: Space, select: str) -> str:
    text = f"{cell.rpartition('-')[2]} {select} {sorted(space.items())}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _one_of(name: str, one: Range | tuple[Any, ...]) -> Any:
    """A value to name cells by, and that a dry run takes: the one with the most steps."""
    values = (one.low, one.high) if isinstance(one, Range) else one
    if name in ("epochs", "max_steps") and all(isinstance(value, int | float) for value in values):
        return max(values)
    return values[0]


def _is_whole(name: str, value: Mapping[str, Any], method: Any) -> bool:
    """Whether a setting is a whole number; raises an error for one that is no number."""
    kinds: tuple[Any, ...] = ()
    if name.startswith("options.") and method in methods.names():
        hint = typing.get_type_hints(methods.find(method).function).get(_plain(name))
        kinds = typing.get_args(hint) or (hint,)
    for group in () if kinds else GROUPS.values():
        hint = typing.get_type_hints(group).get(name)
        kinds = kinds or ((kind_of(hint),) if hint is not None else ())
    if kinds and not {int, float} & set(kinds):
        raise UserError(f"{_plain(name)} is a range, and is no number: give a list")
    # A method of one's own says nothing of its options; then the plan does.
    return float not in kinds if kinds else all(type(value.get(end)) is int for end in ("low", "high"))


def _plain(name: str) -> str:
    return name.removeprefix("options.")
