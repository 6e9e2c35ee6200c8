"""What a step needs of the models, stack by stack, and what each of its terms is a mean over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from torch import Tensor
from transformers import PreTrainedModel

from stillery.losses import Between, Mixed, flat_layers
from stillery.models.family import Sizes, stacks_of
from stillery.models.outputs import Trace, Wanted
from stillery.models.trace import trace
from stillery.recipe import MIXED_ROWS, Clock, Layers, Match, Pairs, StackName, Stage
from stillery.train.denominator import rows_of

__all__ = [
    "MIXED_ROWS",
    "Meeting",
    "ModelSizes",
    "Needs",
    "between_of",
    "meeting_of",
    "needs_at",
    "needs_of",
    "pairs_of",
    "rows_of",
    "shown_by",
    "sizes_in",
]

Needs = Mapping[StackName | None, Wanted]
"""What a model has to show of each stack, of its first where the name is None."""

ModelSizes = Sizes | Mapping[str, Sizes]
"""The sizes of a model's one stack, or of each of its stacks by name."""


def sizes_in(model: ModelSizes, stack: StackName | None) -> Sizes:
    """The sizes of a stack, of the first where none is named."""
    if isinstance(model, Sizes):
        return model
    return next(iter(model.values())) if stack is None else model[stack]


def between_of(student: Mapping[str, Sizes], teacher: ModelSizes) -> dict[StackName | None, Between]:
    """Each stack of the student and the teacher's of that name; the first one also by None."""
    found: dict[StackName | None, Between] = {}
    for name in (None, *get_args(StackName)):
        if name is None or name in student:
            ours, theirs = sizes_in(student, name), sizes_in(teacher, name)
            found[name] = Between(depths=(ours.layers, theirs.layers), widths=(ours.width, theirs.width))
    return found


def pairs_of(match: Match, student_layers: int, teacher_layers: int, clock: Clock) -> Pairs:
    """The layers that meet in a match at this time."""
    return match.pairs(student_layers, teacher_layers, clock)


Meeting = tuple[tuple[tuple[Layers, Layers], ...], ...]
"""The layers that meet in each match of a stage."""


def meeting_of(stage: Stage, between: Mapping[StackName | None, Between], clock: Clock) -> Meeting:
    """The layers that meet in a stage at this time."""
    return tuple(tuple(pairs_of(match, *between[match.stack].depths, clock)) for match in stage.matches)


def needs_of(stage: Stage, between: Mapping[StackName | None, Between], clock: Clock, view: str) -> tuple[Needs, Needs]:
    """What the student and what the teacher has to show of one view of a batch in a step of the stage."""
    return needs_at(stage, meeting_of(stage, between, clock), view)


def needs_at(stage: Stage, meeting: Meeting, view: str) -> tuple[Needs, Needs]:
    """The same where it is known which layers meet."""
    student: dict[StackName | None, Wanted] = {}
    teacher: dict[StackName | None, Wanted] = {}
    for match, pairs in zip(stage.matches, meeting, strict=True):
        consistency = match.against == "student"
        for ours, theirs in pairs:
            # Consistency looks at the student's plain view too, and never at the teacher.
            if match.view == view or consistency:
                student[match.stack] = _both(student.get(match.stack), _needed(match, flat_layers(ours)))
            if match.view == view and not consistency:
                teacher[match.stack] = _both(teacher.get(match.stack), _needed(match, flat_layers(theirs)))
    return student, teacher


def _needed(match: Match, layers: Sequence[int]) -> Wanted:
    """What a match looks at, of layers of its stack."""
    shown = match.represent
    first = "hidden" not in shown.needs or shown.reads == "first"
    return Wanted(**dict.fromkeys(shown.needs, layers), raw_last=shown.raw_last, first_of_last=first)


def shown_by(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    needs: Needs,
    mixed: Mixed | None = None,
    drop_start: bool = False,
    *,
    logits: bool = True,
    shorten: Callable[[Tensor], Tensor] | None = None,
) -> Trace:
    """Run a model on a batch, or on its mixed examples, and keep what is needed; the rest as for `trace`."""
    names = stacks_of(model.config)
    wanted: dict[str, Wanted] = {}
    for stack, of_stack in needs.items():
        wanted[stack or names[0]] = _both(wanted.get(stack or names[0]), of_stack)
    return trace(
        model,
        mixed.inputs(inputs) if mixed else inputs,
        wanted,
        change=dict.fromkeys(names, mixed) if mixed else None,
        drop_start=drop_start,
        logits=logits,
        shorten=shorten,
    )


def _both(one: Wanted | None, other: Wanted) -> Wanted:
    """What either of two asks of a stack."""
    if one is None:
        return other
    layers: dict[str, set[int]] = {name: {*layers, *other.layers[name]} for name, layers in one.layers.items()}
    return Wanted(
        **layers, raw_last=one.raw_last or other.raw_last, first_of_last=one.first_of_last and other.first_of_last
    )
