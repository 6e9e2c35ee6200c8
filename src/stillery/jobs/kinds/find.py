"""Which kind a model is of: by its configuration, and where it is still to become one by the data it is trained on."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from functools import cache
from importlib import import_module

from stillery.jobs import kinds as folder
from stillery.jobs.config.settings import DataSettings
from stillery.jobs.kinds.base import Kind
from stillery.models.family import kind_of
from stillery.models.load_model import read_config

__all__ = ["all_kinds", "kind_of_model", "kind_to_train", "other_kind_meant"]


@cache
def all_kinds() -> tuple[Kind, ...]:
    """Every kind, of the modules in this folder that have a `KIND`."""
    modules = (import_module(f"{folder.__name__}.{found.name}") for found in pkgutil.iter_modules(folder.__path__))
    return tuple(module.KIND for module in modules if hasattr(module, "KIND"))


def kind_of_model(model: str, data: DataSettings | None = None) -> Kind:
    """The kind of a trained model: of those with its stacks the one whose head it has.

    Where it has none of these heads it is of the kind that the data is for, which then says what it lacks.
    """
    config = read_config(model)
    possible = _with_layout(kind_of(config, model))
    architectures = config.architectures or []
    headed = [kind for kind in possible if any(name.endswith(kind.heads) for name in architectures if kind.heads)]
    meant = [kind for kind in possible if data is not None and kind.meant(data)]
    return (headed or meant or _usual(possible))[0]


def kind_to_train(model: str, data: DataSettings) -> Kind:
    """The kind that a pretrained model is fine-tuned to be: of those with its stacks the one that the data is for."""
    possible = _with_layout(kind_of(read_config(model), model))
    return ([kind for kind in possible if kind.meant(data)] or _usual(possible))[0]


def other_kind_meant(kind: Kind, model: str, data: DataSettings) -> Kind | None:
    """The kind that this data can only be for, where a model with the same stacks is of another one."""
    possible = _with_layout(kind_of(read_config(model), model))
    meant = [one for one in possible if one.meant(data)]
    return meant[0] if meant and kind not in meant else None


def _with_layout(layout: str) -> list[Kind]:
    return [kind for kind in all_kinds() if layout in kind.layouts]


def _usual(possible: Sequence[Kind]) -> list[Kind]:
    return [kind for kind in possible if not kind.heads]
