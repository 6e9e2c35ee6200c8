"""The plan of a step: which layers meet, what each model must output, and what each loss term is a mean over.

A plan is worked out once per step, by `StepPlanner`. The objective and its loss terms, the prefetch, the teacher, the
teacher cache and the CUDA graphs read it; none of them asks a pairing again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import get_args

from stillery.losses import Between
from stillery.models.family import Sizes
from stillery.models.wanted_outputs import Wanted
from stillery.pair_distances import flat_layers
from stillery.recipe import Clock, Layers, Match, Pairs, StackName, Stage
from stillery.train.denominator import Denominator, rows_of

__all__ = [
    "LayerPairs",
    "ModelSizes",
    "Needs",
    "StageRows",
    "StepPlan",
    "StepPlanner",
    "between_of",
    "pairs_of",
    "rows_of",
    "sizes_in",
    "union",
]

Needs = Mapping[StackName | None, Wanted]
"""What a model must output of each stack, of its first where the name is None."""

ModelSizes = Sizes | Mapping[str, Sizes]
"""The sizes of a model's one stack, or of each of its stacks by name."""

LayerPairs = tuple[tuple[tuple[Layers, Layers], ...], ...]
"""The (student, teacher) layers that meet in each match of a stage."""


@dataclass(frozen=True, eq=False)
class StageRows:
    """What each match of a stage is a mean over, found once, when a step is first divided into micro-batches."""

    matches: Sequence[Match]
    first_stack: str

    @cached_property
    def denominators(self) -> tuple[Denominator, ...]:
        """The rows of each match, in the order of the matches."""
        return tuple(rows_of(match, self.first_stack) for match in self.matches)


@dataclass(frozen=True, kw_only=True, eq=False)
class StepPlan:
    """What one step of a stage compares.

    `pairs` are match by match, in the order of the stage's matches. `student` says what the student must output on each
    view of a batch (plain, mixed), `teacher` the same of the views the teacher runs on. `rows` are those each term is a
    mean over, `weights` are the terms' in the total.
    """

    clock: Clock
    stage: Stage
    pairs: LayerPairs
    student: Mapping[str, Needs]
    teacher: Mapping[str, Needs]
    rows: StageRows
    weights: Mapping[str, float]

    @property
    def predicts(self) -> bool:
        """Whether the student's predictions enter the loss."""
        return bool(self.stage.hard_weight) or self.stage.prediction is not None

    @property
    def counted(self) -> bool:
        """Whether a match's distance counts what it is a mean over, so that a divided step must be counted first."""
        return "counted" in self.rows.denominators

    def without_labels(self) -> StepPlan:
        """The same without the labels' loss: targets the student generated itself are no labels."""
        return replace(self, stage=replace(self.stage, hard_weight=0.0))

    def counting(self) -> tuple[Stage, LayerPairs]:
        """The stage with those matches alone whose distance counts what it is a mean over, and their pairs."""
        chosen = [number for number, rows in enumerate(self.rows.denominators) if rows == "counted"]
        matches = tuple(self.stage.matches[number] for number in chosen)
        return replace(self.stage, matches=matches), tuple(self.pairs[number] for number in chosen)


class StepPlanner:
    """Works out the plan of any step of a stage; as long as the same layers meet only the clock and weights change."""

    def __init__(self, stage: Stage, between: Mapping[StackName | None, Between], first_stack: str) -> None:
        self.stage, self.between = stage, between
        self.rows = StageRows(stage.matches, first_stack)
        self._last: StepPlan | None = None

    def __call__(self, clock: Clock) -> StepPlan:
        """The plan of the step at this time."""
        stage, last = self.stage, self._last
        pairs = tuple(tuple(pairs_of(match, *self.between[match.stack].depths, clock)) for match in stage.matches)
        weights = {"hard": stage.hard_weight, "soft": stage.prediction.weight if stage.prediction else 0.0}
        weights |= {match.name: match.weight_at(clock) for match in stage.matches}
        if last is not None and last.pairs == pairs:
            return replace(last, clock=clock, weights=weights)
        needs = {view: _needs_on(stage, pairs, view) for view in ("plain", "mixed")}
        self._last = StepPlan(
            clock=clock,
            stage=stage,
            pairs=pairs,
            student={view: student for view, (student, _) in needs.items()},
            teacher={view: needs[view][1] for view in _teacher_views(stage)},
            rows=self.rows,
            weights=weights,
        )
        return self._last


def _teacher_views(stage: Stage) -> list[str]:
    """The views of a batch that a stage runs its teacher on."""
    matched = {match.view for match in stage.matches if match.against == "teacher"}
    return [view for view in ("plain", "mixed") if view in matched or (view == "plain" and stage.prediction)]


def _needs_on(stage: Stage, pairs: LayerPairs, view: str) -> tuple[Needs, Needs]:
    """What the student and the teacher must output on one view of a batch, where these layers meet."""
    student: dict[StackName | None, Wanted] = {}
    teacher: dict[StackName | None, Wanted] = {}
    for match, meeting in zip(stage.matches, pairs, strict=True):
        consistency = match.against == "student"
        for ours, theirs in meeting:
            # Consistency compares with the student's plain view too, and never with the teacher.
            if match.view == view or consistency:
                student[match.stack] = union(student.get(match.stack), _needed(match, flat_layers(ours)))
            if match.view == view and not consistency:
                teacher[match.stack] = union(teacher.get(match.stack), _needed(match, flat_layers(theirs)))
    return student, teacher


def _needed(match: Match, layers: Sequence[int]) -> Wanted:
    """What a match needs of layers of its stack."""
    represent = match.represent
    first = "hidden" not in represent.needs or represent.reads == "first"
    return Wanted(**dict.fromkeys(represent.needs, layers), raw_last=represent.raw_last, first_of_last=first)


def union(one: Wanted | None, other: Wanted) -> Wanted:
    """What two matches need of a stack together."""
    if one is None:
        return other
    layers: dict[str, set[int]] = {name: {*layers, *other.layers[name]} for name, layers in one.layers.items()}
    return Wanted(
        **layers, raw_last=one.raw_last or other.raw_last, first_of_last=one.first_of_last and other.first_of_last
    )


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
