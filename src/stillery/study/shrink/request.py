"""What is asked of a search: the teacher, the students to try, what is allowed; checked before torch is loaded."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stillery.errors import ErrorList, UserError, nearest
from stillery.jobs.config.settings import (
    Asked,
    ConditionSettings,
    DataSettings,
    Distill,
    Finetune,
    resolve,
    setting_names,
)
from stillery.jobs.first_checks import check_first
from stillery.models.option_words import LAYER_CHOICES
from stillery.setting import Named, option_name
from stillery.study.shrink.defaults import HOLDOUT, METHOD, WITHIN
from stillery.train.settings import Training

__all__ = [
    "FILE",
    "GIVEN",
    "Given",
    "Request",
    "check_out",
    "requested",
]

FILE = "search.json"
"""The file of a search with what was measured."""

GIVEN = "given"
"""The subfolder of a search with what was given in memory."""

INITS = (*LAYER_CHOICES, "random")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a search is given beside the settings of training, as the user wrote it.

    Lists may be texts with commas; `max_params` may have a unit, such as 15M.
    """

    teacher: str | None = None
    model: str | None = None
    within: float | None = None
    max_params: int | str | None = None
    max_latency: float | None = None
    layers: str | int | Sequence[int] | None = None
    widths: str | int | Sequence[int] | None = None
    inits: str | Sequence[str] | None = None
    every: bool = False


@dataclass(frozen=True, kw_only=True)
class Request:
    """A search that is asked for.

    Attributes:
        teacher: the folder or name of a finished teacher; None where one is fine-tuned first.
        base: the fine-tuning of the teacher; None where there is a finished one.
        settings: the settings of the students' training, as given.
        within: how many points below the teacher a student may be; None where the best one is sought.
        max_params, max_latency: what a student may cost.
        layers, widths: the depths and widths to try; None are those that go with the teacher.
        inits: the starts to try; None is the default of the method.
        every: whether every student is trained in full, for the whole curve.
    """

    teacher: str | None
    base: Asked[Finetune] | None
    settings: Mapping[str, Any]
    within: float | None
    max_params: int | None = None
    max_latency: float | None = None
    layers: tuple[int, ...] | None = None
    widths: tuple[int, ...] | None = None
    inits: tuple[str, ...] | None = None
    every: bool = False
    named: Named = field(default=option_name, compare=False)

    def student(self, teacher: str, **values: Any) -> Asked[Distill]:
        """A student's training, with settings of its own."""
        return resolve(Distill, {**self.settings, "teacher": teacher, **values}, self.named)

    def without_holdout(self) -> Request:
        """The same where nothing is held out of train."""
        kept = {name: value for name, value in self.settings.items() if not name.startswith("holdout")}
        return replace(self, settings=kept)


def requested(given: Given, settings: Mapping[str, Any], named: Named = option_name) -> Request:
    """Check a search as far as that needs no model library; all errors are reported together."""
    errors = ErrorList()
    settings = {name: value for name, value in settings.items() if value is not None}
    settings = {"holdout": HOLDOUT, **({} if "recipe" in settings else {"method": METHOD}), **settings}
    if settings.pop("unlabelled", False):
        errors.add(f"{named('unlabelled')}: students are chosen by their scores, which need labels; leave it out")
    if (given.teacher is None) == (given.model is None):
        both = "both" if given.teacher is not None else "neither"
        verb = "are" if both == "both" else "is"
        names = f"{named('teacher')} (a fine-tuned model) {'and' if both == 'both' else 'nor'} {named('model')}"
        errors.add(f"{both} {names} (one to fine-tune first) {verb} given: give one")
    request = Request(
        teacher=given.teacher,
        base=None if given.model is None else _base(given.model, settings, named),
        settings=settings,
        within=_within(given, named, errors),
        max_params=_count(given.max_params, named("max_params"), errors),
        max_latency=_positive(given.max_latency, named("max_latency"), errors),
        layers=_numbers(given.layers, named("layers"), errors),
        widths=_numbers(given.widths, named("widths"), errors),
        inits=_starts(given.inits, named("inits"), errors),
        every=given.every,
        named=named,
    )
    student = request.student(given.teacher or given.model or "?", layers=1)
    if given.teacher is None and given.model is None:
        for line in student.errors:
            errors.add(line)
        errors.raise_any()
    with errors.catch():
        check_first(student)
    errors.raise_any()
    return request


def _base(model: str, settings: Mapping[str, Any], named: Named) -> Asked[Finetune]:
    """The fine-tuning of the teacher: on the same data, with the same training settings as its students."""
    shared = {name for group in (DataSettings, ConditionSettings, Training) for name in setting_names(group)}
    return resolve(
        Finetune, {**{name: value for name, value in settings.items() if name in shared}, "model": model}, named
    )


def _within(given: Given, named: Named, errors: ErrorList) -> float | None:
    value = given.within
    if value is None:
        limited = given.max_params is not None or given.max_latency is not None
        return None if limited else WITHIN
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        errors.add(f"{named('within')} is {value!r}: give points of the metric from 0 on, such as 1.0")
        return None
    return float(value)


def _positive(value: Any, name: str, errors: ErrorList) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    if value is None or good:
        return None if value is None else float(value)
    errors.add(f"{name} is {value!r}: give milliseconds above 0")
    return None


def _count(value: Any, name: str, errors: ErrorList) -> int | None:
    """A number of parameters, as a number or with a unit."""
    if value is None:
        return None
    found = re.fullmatch(r"([0-9][0-9_]*(?:\.[0-9]+)?)([kmb]?)", str(value).strip().casefold())
    number = int(float(found[1].replace("_", "")) * _UNITS[found[2]]) if found else 0
    if number < 1 or isinstance(value, bool):
        errors.add(f"{name} is {value!r}: give a number of parameters, such as 15000000 or 15M")
        return None
    return number


def _numbers(value: Any, name: str, errors: ErrorList) -> tuple[int, ...] | None:
    return _listed(value, name, errors, _whole, "whole numbers from 1 on, such as 2,3")


def _whole(item: Any) -> int:
    number = int(item)
    if isinstance(item, bool) or number < 1 or number != float(item):
        raise ValueError
    return number


def _starts(value: Any, name: str, errors: ErrorList) -> tuple[str, ...] | None:
    found = _listed(value, name, errors, str, f"starts, such as {','.join(INITS[:2])}")
    for one in found or ():
        if one not in INITS:
            errors.add(f"{name} {one}: {nearest(one, INITS)}")
    return found


def _listed(
    value: Any, name: str, errors: ErrorList, read: Callable[[Any], Any], wanted: str
) -> tuple[Any, ...] | None:
    """A list, or a text with commas, without repeated items; None where nothing is given."""
    if value is None:
        return None
    items = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
    items = items if isinstance(items, list | tuple | range) else [items]
    try:
        found = [read(one) for one in items if one != ""]
        if found and len(found) == len(items):
            return tuple(dict.fromkeys(found))
    except (TypeError, ValueError):
        pass
    errors.add(f"{name} {value if isinstance(value, str) else repr(value)}: give {wanted}")
    return None


def check_out(out: Path) -> None:
    """Raise UserError for a folder that holds something else than a search."""
    from stillery.jobs.output_paths import check_folder

    check_folder(out, "--out")
    held = [path for path in out.iterdir() if path.name != GIVEN] if out.is_dir() else []
    if held and not (out / FILE).is_file():
        raise UserError(f"--out {out} is not empty and holds no search: give another folder")
