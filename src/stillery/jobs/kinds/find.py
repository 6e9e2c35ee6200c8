"""Detect the kind of a model from its configuration, or for a pretrained model from the data to train it on."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from functools import cache
from importlib import import_module

from stillery.errors import UserError
from stillery.jobs import kinds as folder
from stillery.jobs.config.settings import DataSettings
from stillery.jobs.kinds.base import Kind
from stillery.models.family import kind_of
from stillery.models.load_model import read_config

__all__ = ["all_kinds", "kind_of_model", "kind_of_stacks", "kind_to_train", "other_kind_meant"]


@cache
def all_kinds() -> tuple[Kind, ...]:
    """Return every kind, from the modules in this folder that define `KIND`."""
    modules = (import_module(f"{folder.__name__}.{found.name}") for found in pkgutil.iter_modules(folder.__path__))
    return tuple(module.KIND for module in modules if hasattr(module, "KIND"))


def kind_of_model(model: str, data: DataSettings | None = None) -> Kind:
    """Return the kind of a trained model: among those with its stacks the one whose head, or whose files, it has.

    Another model is of the kind that the data fits, whose loader then reports what is missing; an encoder saved without
    any head embeds texts.
    """
    config = read_config(model)
    possible = _with_layout(kind_of(config, model))
    architectures = config.architectures or []
    headed = [kind for kind in possible if any(name.endswith(kind.heads) for name in architectures if kind.heads)]
    bare = bool(architectures) and all(name.endswith("Model") for name in architectures)
    found = headed or [kind for kind in possible if bare and kind.recognises(model)]
    meant = [kind for kind in possible if data is not None and kind.meant(data)]
    return (found or meant or [kind for kind in possible if bare and kind.headless] or _usual(possible))[0]


def kind_to_train(model: str, data: DataSettings) -> Kind:
    """Return the kind to fine-tune a pretrained model to: among those with its stacks the one that the data fits."""
    kind = kind_of_stacks(kind_of(read_config(model), model), data)
    if kind.not_fine_tuned is not None:
        raise UserError(kind.not_fine_tuned)
    return kind


def kind_of_stacks(layout: str, data: DataSettings) -> Kind:
    """Return the kind for models with these stacks (`models.family.kind_of`) that the data fits."""
    possible = _with_layout(layout)
    return ([kind for kind in possible if kind.meant(data)] or _usual(possible))[0]


def other_kind_meant(kind: Kind, model: str, data: DataSettings) -> Kind | None:
    """Return the only kind that this data fits, where it is not `kind`; else None."""
    possible = _with_layout(kind_of(read_config(model), model))
    meant = [one for one in possible if one.meant(data)]
    return meant[0] if meant and kind not in meant else None


def _with_layout(layout: str) -> list[Kind]:
    return [kind for kind in all_kinds() if layout in kind.layouts]


def _usual(possible: Sequence[Kind]) -> list[Kind]:
    return [kind for kind in possible if not kind.heads]
