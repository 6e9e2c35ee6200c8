"""Errors for settings that do not apply to a kind of model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from stillery.errors import ErrorList
from stillery.jobs.config.settings import GROUPS, Asked
from stillery.jobs.kinds.base import Kind
from stillery.setting import option_name

__all__ = ["refuse", "refuse_asked"]


def refuse_asked(kind: Kind, asked: Asked[Any], errors: ErrorList) -> None:
    """Add an error for every setting of a run that is for models of another kind.

    A setting given by the user is refused even at its default value. A run file written by a run lists all settings,
    and those do not count as given.
    """
    given = frozenset() if "job" in asked.given else asked.given
    groups = (getattr(asked.run, name) for name in GROUPS if hasattr(asked.run, name))
    refuse(kind, groups, errors, given)


def refuse(kind: Kind, groups: Iterable[Any], errors: ErrorList, given: frozenset[str] = frozenset()) -> None:
    """Add an error for every setting of another kind in these groups that is given, or is not at its default."""
    settings = {item.name: (item, group) for group in groups for item in dataclasses.fields(group)}
    for refusal in kind.refuses:
        for name in refusal.names:
            if name not in settings:
                continue
            item, group = settings[name]
            if name in given or getattr(group, name) != item.default:
                errors.add(refusal.line.format(option=option_name(name)))
