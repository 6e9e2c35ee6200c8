"""A run from settings to ready: named checks, one after the other, over one context; all errors are told together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillery.errors import ErrorList, UserError
from stillery.jobs.calibration import Calibration
from stillery.jobs.config.settings import EXAMPLES, Asked, Distill, Finetune, StudentSettings
from stillery.jobs.holdout import held_out
from stillery.jobs.kinds.base import Kind, Read
from stillery.jobs.kinds.refuse import refuse_asked
from stillery.jobs.run_folder import check_place
from stillery.jobs.student_start import Starts
from stillery.jobs.warm import warm
from stillery.models.load_model import Loaded
from stillery.models.student import Student
from stillery.recipe import Recipe
from stillery.train.trackers import check_trackers

__all__ = [
    "Check",
    "Context",
    "check_fingerprints",
    "checked",
    "fits_the_kind",
    "has_a_place",
    "needs",
    "reads_its_data",
    "tracks",
]


@dataclass(kw_only=True, eq=False)
class Context:
    """What is known of a run so far; None is what could not be had, which a check has then reported.

    `run` and `kind` are what the settings and the model come to, `own` is a recipe made in Python. `model` is the one
    that is fine-tuned, or the teacher; `layers_teacher` that of the hidden-state stage, and `texts` its examples.
    Of a student with a tokenizer of its own, `encoding` is how it reads, `teacher_encoding` how its teacher does.
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
    teacher_encoding: Any = None
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
        """Whether what it needs is there, and the settings it reads are valid."""
        there = all(getattr(context, name) is not None for name in self.needs)
        return there and bool(context.asked.clear(*self.settings))


def needs(*names: str, settings: Sequence[str] = ()) -> Callable[[Callable[[Context], None]], Check]:
    """Make a check that runs where these fields of the context are there, and nothing is wrong with these settings."""
    return lambda run: Check(run, names, tuple(settings))


def checked(asked: Asked[Any], checks: Sequence[Check], out: Path | None, own: Recipe | None = None) -> Context:
    """The context after every check that could be made, those of its kind of model last; raises all errors together."""
    assert isinstance(asked.run, Finetune | Distill)
    context = Context(asked=asked, run=asked.run, errors=asked.gathered(), out=out, own=own)
    for check in checks:
        _make(check, context)
    if context.kind is not None and isinstance(asked.run, Distill):
        for check in context.kind.checks:
            _make(check, context)
    context.errors.raise_any()
    return context


def _make(check: Check, context: Context) -> None:
    if check.ready(context):
        with context.errors.catch():
            check.run(context)


@needs()
def has_a_place(context: Context) -> None:
    """The run's folder can be made, and holds nothing else."""
    if context.out is not None:
        check_place(context.out)


@needs()
def tracks(context: Context) -> None:
    """The packages of the experiment trackers are installed."""
    check_trackers(context.run.training.trackers)


@needs("kind")
def fits_the_kind(context: Context) -> None:
    """No setting is for another kind of model."""
    assert context.kind is not None
    refuse_asked(context.kind, context.asked, context.errors)


@needs("kind", settings=(*EXAMPLES, "metric", "class_weights"))
def reads_its_data(context: Context) -> None:
    """The splits can be read, drawn and changed as the conditions say, and a part of train held out."""
    assert context.kind is not None
    kind, inputs = context.kind, context.run.inputs
    teacher = context.model if isinstance(context.run, Distill) else None
    labels = None if teacher is None else str(teacher.model.config.id2label)
    read = warm(("read", kind.name, inputs, labels), lambda: kind.read(inputs, teacher))
    under, record = kind.under(context.run.condition, read)
    divided, context.conditions = held_out(context.run.condition, under, record, kind)
    context.read = kind.measured(divided, context.run.training)


def check_fingerprints(wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Refuse to repeat a run on other data or another model than the run file was written for."""
    changed = [name for name, value in wanted.items() if found.get(name) != value]
    if changed:
        raise UserError(
            f"the {' and the '.join(changed)} changed since this run file was written; "
            "remove its [fingerprints] to run anyway"
        )
