"""A run from settings to ready: named checks, one after the other, over one context; all errors are told together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillery.errors import ErrorList
from stillery.jobs.calibration import Calibration
from stillery.jobs.config.settings import Asked, Distill, Finetune, StudentSettings
from stillery.jobs.kinds.base import Kind, Read
from stillery.jobs.student_start import Starts
from stillery.models.load import Loaded
from stillery.models.student import Student
from stillery.recipe import Recipe

__all__ = ["Check", "Context", "checked", "needs"]


@dataclass(kw_only=True, eq=False)
class Context:
    """What is known of a run so far; None is what was not to be had, which some check has said then.

    `run` and `kind` are what the settings and the model come to, `own` is a recipe made in Python. `model` is the one
    that is fine-tuned, or the teacher; `layers_teacher` that of the hidden-state stage, and `texts` its examples.
    """

    asked: Asked[Any]
    run: Any
    errors: ErrorList
    out: Path | None = None
    own: Recipe | None = None
    kind: Kind | None = None
    model: Loaded | None = None
    recipe: Recipe | None = None
    layers_teacher: Loaded | None = None
    read: Read | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    texts: Any = None
    student: Student | None = None
    student_settings: StudentSettings | None = None
    starts: Starts | None = None
    calibration: Calibration | None = None
    encoding: Any = None
    texts_encoding: Any = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """A step of preparing a run, which adds to its context or to its errors."""

    run: Callable[[Context], None]
    needs: tuple[str, ...]
    settings: tuple[str, ...]

    @property
    def name(self) -> str:
        """What is checked."""
        return self.run.__name__

    def ready(self, context: Context) -> bool:
        """Whether what it needs is there, and the settings it reads are what was asked for."""
        there = all(getattr(context, name) is not None for name in self.needs)
        return there and bool(context.asked.clear(*self.settings))


def needs(*names: str, settings: Sequence[str] = ()) -> Callable[[Callable[[Context], None]], Check]:
    """A check that runs where these fields of the context are there, and nothing is wrong with these settings."""
    return lambda run: Check(run, names, tuple(settings))


def checked(asked: Asked[Any], checks: Sequence[Check], out: Path | None, own: Recipe | None) -> Context:
    """The context after every check that could be made; what is wrong is in its errors."""
    assert isinstance(asked.run, Finetune | Distill)
    context = Context(asked=asked, run=asked.run, errors=asked.gathered(), out=out, own=own)
    for check in checks:
        if check.ready(context):
            with context.errors.catch():
                check.run(context)
    return context
