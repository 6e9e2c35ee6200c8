"""A setting: a dataclass field with its default, help text and limits.

One declaration serves the command line, the TOML file, the Python call and the check before a run.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeVar

from stillery.faults import Gathered, nearest

__all__ = ["fault_of", "kind_of", "make", "setting"]

Settings = TypeVar("Settings")


def setting(
    default: Any,
    help: str,  # noqa: A002
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """A dataclass field that knows its help text and what values it may take."""
    limits = {"least": least, "most": most, "above": above, "choices": choices}
    return field(default=default, metadata={"help": help, **limits})


def kind_of(hint: Any) -> Any:
    """The type a setting holds when it is given: `int` for `int | None`."""
    if isinstance(hint, types.UnionType):
        return next(kind for kind in typing.get_args(hint) if kind is not type(None))
    return hint


def fault_of(name: str, value: Any, hint: Any, limits: Mapping[str, Any]) -> str | None:
    """What is wrong with a setting's value, or None."""
    kind = kind_of(hint)
    if value is None:
        return None if kind is not hint else f"{name} is not given"
    if typing.get_origin(kind) is tuple:
        if isinstance(value, (list, tuple)) and all(type(item) is int and item >= 1 for item in value):
            return None
        return f"{name} is {value!r}: give a list of layer numbers from 1 on"
    if kind is bool:
        return None if isinstance(value, bool) else f"{name} is {value!r}: give true or false"
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        word = {int: "a whole number", float: "a number", str: "a text", dict: "a table"}[kind]
        return f"{name} is {value!r}: give {word}"
    if kind is float and not math.isfinite(value):
        return f"{name} is {value!r}: give a finite number"
    if limits.get("choices") and value not in limits["choices"]:
        return f"{name} is {value!r}: choose from {', '.join(limits['choices'])}"
    if limits.get("least") is not None and value < limits["least"]:
        return f"{name} is {value!r}: it must be at least {limits['least']}"
    if limits.get("above") is not None and value <= limits["above"]:
        return f"{name} is {value!r}: it must be more than {limits['above']}"
    if limits.get("most") is not None and value > limits["most"]:
        return f"{name} is {value!r}: it must be at most {limits['most']}"
    return None


def make(kind: type[Settings], values: Mapping[str, Any], where: str, faults: Gathered) -> Settings:
    """The settings object of the given values; unknown names and wrong values are noted in `faults`."""
    hints = typing.get_type_hints(kind)
    known = {item.name: item for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    good: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            faults.add(f"{where}{name} is not a setting: {nearest(name, known)}")
            continue
        fault = fault_of(f"{where}{name}", value, hints[name], known[name].metadata)
        if fault:
            faults.add(fault)
        elif isinstance(value, list):
            good[name] = tuple(value)
        else:
            good[name] = float(value) if kind_of(hints[name]) is float and value is not None else value
    for name, item in known.items():
        if name not in values and item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            faults.add(f"{where}{name} is not given")
    return kind(**good) if not faults.lines else typing.cast(Settings, None)
