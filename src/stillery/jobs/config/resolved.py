"""Resolved settings of a run: the method's defaults filled in where the user chose nothing."""

from __future__ import annotations

import dataclasses

from stillery import methods
from stillery.jobs.config.settings import MethodSettings, StudentSettings
from stillery.models.option_words import DEFAULT_START
from stillery.recipe import Recipe

__all__ = ["resolved_method", "resolved_student"]


def resolved_student(
    settings: StudentSettings, recipe: Recipe | None, *, start: str = DEFAULT_START
) -> StudentSettings:
    """Fill in the student's `init` and `head` from the method; `start` is the `init` of methods without one."""
    return dataclasses.replace(
        settings,
        init=settings.init or (recipe.init if recipe else None) or start,
        head=settings.head or (recipe.head if recipe else "fresh"),
    )


def resolved_method(method: MethodSettings) -> MethodSettings:
    """Fill in every option of the method, so that a later change of defaults does not change the run."""
    if method.recipe is not None:
        return method
    options = methods.find(method.method).options | method.method_options()
    options = {name: value for name, value in options.items() if value is not None}
    return dataclasses.replace(
        method,
        hard_weight=options.pop("hard_weight", None),
        temperature=options.pop("temperature", None),
        options=options,
    )
