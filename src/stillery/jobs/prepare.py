"""Preparation of a run from its settings: a sequence of checks on one context; all errors are reported together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillery.errors import ErrorList, UserError
from stillery.jobs.calibration import Calibration
from stillery.jobs.config.changed import changed_inputs, input_in_words
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
    """State of a run in preparation; a field stays None where a check has failed and reported an error.

    `run` and `kind` are resolved from the settings and the model, `own` is a recipe made in Python. `model` is the one
    to fine-tune, or the teacher; `layers_teacher` is that of the hidden-state stage, and `texts` its examples.
    For a student with a tokenizer of its own, `encoding` is the student's and `teacher_encoding` the teacher's.
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
    """A step of preparing a run, which fills fields of its context or adds errors."""

    run: Callable[[Context], None]
    needs: tuple[str, ...]
    settings: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the check's function."""
        return self.run.__name__

    def ready(self, context: Context) -> bool:
        """Return whether the fields it needs are set and the settings it reads are valid."""
        there = all(getattr(context, name) is not None for name in self.needs)
        return there and bool(context.asked.clear(*self.settings))


def needs(*names: str, settings: Sequence[str] = ()) -> Callable[[Callable[[Context], None]], Check]:
    """Decorate a check to run only where these fields of the context are set and these settings are valid."""
    return lambda run: Check(run, names, tuple(settings))


def checked(asked: Asked[Any], checks: Sequence[Check], out: Path | None, own: Recipe | None = None) -> Context:
    """Run every check that is ready, those of the kind of model last; return the context, or raise all errors."""
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
    """Check that the run's folder can be made, and holds nothing else."""
    if context.out is not None:
        check_place(context.out)


@needs()
def tracks(context: Context) -> None:
    """Check that the packages of the experiment trackers are installed."""
    check_trackers(context.run.training.trackers)


@needs("kind")
def fits_the_kind(context: Context) -> None:
    """Check that no setting is for another kind of model."""
    assert context.kind is not None
    refuse_asked(context.kind, context.asked, context.errors)


@needs("kind", settings=(*EXAMPLES, "metric", "class_weights"))
def reads_its_data(context: Context) -> None:
    """Read the splits, sample and alter train by the condition settings, and hold out a part of it."""
    assert context.kind is not None
    kind, inputs = context.kind, context.run.inputs
    teacher = context.model if isinstance(context.run, Distill) else None
    labels = None if teacher is None else str(teacher.model.config.id2label)
    read = warm(("read", kind.name, inputs, labels), lambda: kind.read(inputs, teacher))
    under, record = kind.under(context.run.condition, read)
    divided, context.conditions = held_out(context.run.condition, under, record, kind)
    context.read = kind.measured(divided, context.run.training)


def check_fingerprints(wanted: Mapping[str, str], found: Mapping[str, str], resumed: Path | None = None) -> None:
    """Raise UserError if the data or a model has changed since the run file was written.

    `resumed` is the folder of a run that continues, which no change is allowed in.
    """
    changed = [input_in_words(name) for name in changed_inputs(wanted, found) if name in wanted]
    if not changed:
        return
    what = f"{' and '.join(changed)} changed since"
    if resumed is not None:
        raise UserError(
            f"{what} the run in {resumed} began: put back what it was and --resume again, or start again with "
            "--overwrite"
        )
    raise UserError(f"{what} this run file was written; remove its [fingerprints] to run anyway")
