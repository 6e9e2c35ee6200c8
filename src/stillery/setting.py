"""A setting: a dataclass field with its default, help text and limits.

One declaration is used by the command line, the TOML file, the Python call and the checks before a run.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar

from stillery.errors import ErrorList, nearest

__all__ = ["Choices", "Named", "Panel", "choices_of", "kind_of", "make", "option_name", "panel_of", "setting"]

Settings = TypeVar("Settings")

Named = Callable[[str], str]
"""Maps a setting to its name in errors: the option on the command line, file and key in a run file."""

Choices = tuple[str, ...] | Callable[[], tuple[str, ...]]
"""The allowed values of a setting, or a function that returns them where packages may add some."""


class Panel(StrEnum):
    """The headings of options in the help, in this order.

    The first has the options that most runs use, and those with most effect on the size and quality of a student. A
    group of settings has a `panel`, which a setting may override.
    """

    FIRST = "What matters first"
    DATA = "Data"
    STUDENT = "Student"
    METHOD = "Method"
    TRAINING = "Training"
    GENERATION = "Text generation"
    SPEED = "Speed"
    OUTPUT = "Output"


_WORDS = {int: "a whole number", float: "a number", str: "a text", dict: "a table"}


def option_name(name: str) -> str:
    """Return the command-line option of a setting.

    >>> option_name("max_length")
    '--max-length'
    """
    return f"--{name.replace('_', '-')}"


def setting(
    default: Any,
    help: str,  # noqa: A002
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    choices: Choices | None = None,
    offers: Choices | None = None,
    blank: bool = False,
    panel: Panel | None = None,
) -> Any:
    """Declare a dataclass field with a help text and limits of its values.

    `blank` allows an empty text. `offers` are shown like choices but not checked here. `panel` is the heading in the
    help, by default that of the group.
    """
    limits = {"least": least, "most": most, "above": above, "choices": choices, "offers": offers, "blank": blank}
    return field(default=default, metadata={"help": help, "panel": panel, **limits})


def choices_of(item: dataclasses.Field[Any]) -> tuple[str, ...] | None:
    """Return the choices of a setting, or the values it offers; None if there are none."""
    return _found(item.metadata["choices"]) or _found(item.metadata["offers"])


def panel_of(group: type, item: dataclasses.Field[Any]) -> Panel:
    """Return the heading of a setting in the help."""
    found: Panel = item.metadata.get("panel") or group.panel  # type: ignore[attr-defined]
    return found


def _found(choices: Choices | None) -> tuple[str, ...] | None:
    return choices() if callable(choices) else choices


def kind_of(hint: Any) -> Any:
    """Return the plain type of a type hint: `int` for `int | None`, `dict` for `dict[str, Any]`."""
    if isinstance(hint, types.UnionType):
        hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
    return typing.get_origin(hint) or hint


def _error_of(name: str, value: Any, kind: Any, limits: Mapping[str, Any]) -> str | None:
    """Return the error of a setting's value, or None."""
    if kind is tuple:
        if isinstance(value, (list, tuple)) and all(type(item) is int and item >= 1 for item in value):
            return None
        return f"{name} is {value!r}: give a list of layer numbers from 1 on"
    if kind is bool:
        return None if isinstance(value, bool) else f"{name} is {value!r}: give true or false"
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        return f"{name} is {value!r}: give {_WORDS[kind]}"
    if value == "" and not limits.get("blank"):
        return f"{name} is empty: give a text, or leave it out"
    if kind is float and not math.isfinite(value):
        return f"{name} is {value!r}: give a finite number"
    choices = _found(limits.get("choices"))
    if choices and value not in choices:
        return f"{name} is {value!r}: choose from {', '.join(choices)}"
    if limits.get("least") is not None and value < limits["least"]:
        return f"{name} is {value!r}: it must be at least {limits['least']}"
    if limits.get("above") is not None and value <= limits["above"]:
        return f"{name} is {value!r}: it must be more than {limits['above']}"
    if limits.get("most") is not None and value > limits["most"]:
        return f"{name} is {value!r}: it must be at most {limits['most']}"
    return None


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def make(
    kind: type[Settings], values: Mapping[str, Any], named: Named, errors: ErrorList
) -> tuple[Settings, frozenset[str]]:
    """Return the settings object of the given values, and the names of invalid ones, which get their default instead.

    Invalid values and unknown names are added to `errors`.
    """
    hints = _hints(typing.cast(Any, kind))
    known = {item.name: item for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    good: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            errors.add(f"{named(name)} is not a setting: {nearest(name, known)}")
            continue
        of_kind = kind_of(hints[name])
        error = _error_of(named(name), value, of_kind, known[name].metadata)
        if error:
            errors.add(error)
        else:
            good[name] = of_kind(value) if of_kind in (float, tuple) else value
    return kind(**good), frozenset(values.keys() - good.keys())
