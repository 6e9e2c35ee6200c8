"""A distillation method as data: a Recipe of Stages with their Matches of layers and Prediction matching.

Frozen dataclasses name the parts (plain functions) that a method is composed of. The method of a paper is a function
that returns a `Recipe`; nothing here runs a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from stillery.errors import UserError
from stillery.outputs import StackOutputs

__all__ = [
    "LEAST_STEPS",
    "MIXED_ROWS",
    "Clock",
    "Combine",
    "Criterion",
    "CriterionBatch",
    "CriterionSizes",
    "Distance",
    "Divergence",
    "Layers",
    "Match",
    "Mixing",
    "Need",
    "Pair",
    "Pairs",
    "Prediction",
    "Project",
    "Recipe",
    "Representation",
    "Rows",
    "Schedule",
    "StackName",
    "Stage",
    "Stateful",
    "SumAndCount",
    "View",
    "part_name",
]

_DECODER_SEED = 0xDEC0DE

LEAST_STEPS = 1000
"""The minimum number of prediction distillation steps after a hidden-state stage, in a run that is long enough."""

Layers = int | tuple[int, ...]
"""A layer, 1-based, 0 being the embedding output; or several layers that are compared as one."""

Pairs = Sequence[tuple[Layers, Layers]]
"""The matched (student, teacher) layers."""

StackName = Literal["encoder", "decoder"]
"""A stack of layers: a classifier has an encoder, a model that generates text a decoder, or both."""

Rows = Literal[
    "examples", "targets",
    "tokens", "pairs", "decoder tokens", "decoder pairs", "causal pairs", "cross pairs",
    "mixed tokens", "mixed pairs", "mixed decoder tokens", "mixed decoder pairs", "mixed causal pairs",
    "mixed cross pairs",
]  # fmt: skip
"""The rows that a loss term averages over.

These are examples, scored target tokens, real tokens of the encoder or the decoder, or pairs of real tokens of one
example: all pairs, a token with itself and those before it (causal), or a decoder's with an encoder's (cross). The
mixed ones are those of examples mixed by MixUp.
"""

MIXED_ROWS: Mapping[Rows, Rows] = {
    "tokens": "mixed tokens",
    "pairs": "mixed pairs",
    "decoder tokens": "mixed decoder tokens",
    "decoder pairs": "mixed decoder pairs",
    "causal pairs": "mixed causal pairs",
    "cross pairs": "mixed cross pairs",
}
"""Maps the rows of plain examples to those of mixed examples."""

Need = Literal["hidden", "query", "key", "value", "feature", "cross_query", "cross_key"]
"""An intermediate output of a layer that a representation is computed from.

These are hidden states, the queries, keys and values of its attention, and the input of the final classifier
(`feature`, of the last layer). The `cross` ones are of a decoder's attention to the encoder.
"""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The position in a run. Everything random or scheduled is a pure function of it, so resuming is exact.

    `step` counts optimiser steps of the run from 0, `stage_step` those of the stage.
    """

    seed: int = 0
    stage: int = 0
    epoch: int = 0
    step: int = 0
    stage_step: int = 0
    stage_steps: int = 1
    stage_epochs: int = 1


@dataclass(frozen=True, eq=False)
class View:
    """A representation from one model: values whose last axis is a row, a mask of rows, and a mask of a row's keys."""

    values: Tensor
    mask: Tensor | None = None
    key_mask: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Representation:
    """The quantity of a layer that is compared: its hidden states, their mean, its attention scores, ...

    Attributes:
        name: its name in descriptions of a recipe.
        extract: a function of the stack's outputs and a layer that returns a `View`.
        rows: the type of its rows.
        needs: the intermediate outputs that it is computed from.
        joint: whether `extract` takes a tuple of layers instead of one.
        sized: whether a row is as wide as the model, and so can be projected.
        heads: the number of heads its rows are split into: each model's own, the teacher's for both, or a number.
        raw_last: take the last hidden state before the final norm, in families that have one.
        reads: the tokens it depends on: the first, the mean of the real ones, the real ones, or all, padding included.
        extract_all: the rows of several layers at once, [layers, batch, width], if that is faster.
        together: whether it depends on the batch composition or padding, so that micro-batches change it.
        reduction: the default reduction of a distance over elements, where rows differ in length.
        crossed: the same representation of a decoder's cross-attention.
    """

    name: str
    extract: Callable[..., View]
    rows: Rows
    needs: tuple[Need, ...] = ("hidden",)
    joint: bool = False
    sized: bool = True
    heads: int | Literal["own", "teacher"] | None = None
    raw_last: bool = False
    reads: Literal["first", "mean", "real", "all"] = "all"
    extract_all: Callable[[StackOutputs, Sequence[int]], Tensor] | None = None
    together: bool = False
    reduction: str | None = None
    crossed: Representation | None = None


Pair = Callable[[int, int, Clock], Pairs]
"""(number of student layers, number of teacher layers, clock) -> the matched layers."""

Project = Callable[[Sequence[int], Sequence[int]], nn.Module | None]
"""(student widths, teacher widths of the pairs) -> a module (student, teacher, pair number) -> both, or None."""

Combine = Callable[[Tensor, Sequence[Tensor]], Tensor]
"""(student rows, rows of several teacher layers) -> the target rows."""


@dataclass(frozen=True, kw_only=True)
class CriterionSizes:
    """The sizes a criterion is built with: widths of each pair, number of classes, number of training examples."""

    student: Sequence[int]
    teacher: Sequence[Sequence[int]]
    classes: int
    examples: int


@dataclass(frozen=True, kw_only=True, eq=False)
class CriterionBatch:
    """The batch that a criterion receives: labels, indices of the training examples, name of the match, and clock."""

    labels: Tensor | None
    index: Tensor
    match: str
    regression: bool
    clock: Clock


Criterion = Callable[[CriterionSizes], nn.Module]
"""Builds a module that takes [(student rows, [teacher rows of each layer]) of each pair] and a `CriterionBatch`.

It returns a scalar, the mean over the examples.
"""


@runtime_checkable
class Stateful(Protocol):
    """A criterion or a flow with state, which is updated once per optimiser step and saved with the run."""

    def update(self, new_epoch: bool) -> None:
        """Update the state with the batches of this step."""


Schedule = Callable[[Clock], float]
"""A weight as a function of the clock."""


SumAndCount = tuple[Tensor, Tensor]
"""The sum of a distance over valid elements, and their count; a step adds both up over its micro-batches."""

Distance = Callable[..., Tensor | SumAndCount]
"""(student rows, teacher rows, mask=, reduction=, key_mask=) -> a mean over all valid elements, or their sum and count.

A distance may omit the keywords that it does not use; without `key_mask` no keys of a row are left out.
"""


class Divergence(Protocol):
    """A divergence of student and teacher predictions, averaged over the batch."""

    def __call__(
        self, student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, square: bool = True
    ) -> Tensor:
        """Compare logits [batch, classes]."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """One layer-matching loss: represent matched layers, project them, take a distance per pair, reduce and weight.

    The layers are those of the named `stack` of both models, or of their first stack.

    Where a pair has several layers on a side, `combine` merges the teacher's into one target; without it they are
    concatenated before the projection. `flow` gives every pair its weight in the sum (optimal transport). A `criterion`
    replaces projection and distance; it receives all pairs and may have weights and state. Matches that name the same
    `shared` criterion use one module, across stages too.

    With the view `mixed` the models run on mixed examples (MixUp). A match `against` the student is a consistency loss:
    it compares the student's representation of mixed examples with the mix of its representations of plain ones,
    `detach`ed or not, and uses the student's layer of each pair.
    """

    name: str
    represent: Representation
    pair: Pair
    distance: Distance
    project: Project | None = None
    combine: Combine | None = None
    flow: Callable[[int, int], nn.Module] | None = None
    criterion: Criterion | None = None
    shared: str | None = None
    reduction: str = "mean"
    over_pairs: Literal["sum", "mean"] = "sum"
    weight: float | Schedule = 1.0
    view: Literal["plain", "mixed"] = "plain"
    against: Literal["teacher", "student"] = "teacher"
    detach: bool = True
    stack: StackName | None = None

    def pairs(self, student_layers: int, teacher_layers: int, clock: Clock) -> Pairs:
        """Return the matched layers at this time; random pairings of a decoder are independent of an encoder's."""
        own = replace(clock, seed=clock.seed + _DECODER_SEED) if self.stack == "decoder" else clock
        return self.pair(student_layers, teacher_layers, own)

    def weight_at(self, clock: Clock) -> float:
        """Return the weight at this time."""
        return self.weight(clock) if callable(self.weight) else self.weight


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Matching of the teacher's predictions: a divergence of softened outputs (for a score, mean squared error)."""

    divergence: Divergence
    temperature: float = 1.0
    square: bool = True
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise UserError(f"temperature is {self.temperature:g}: give a number above 0")
        if self.weight < 0:
            raise UserError(f"the weight of prediction matching is {self.weight:g}: keep hard_weight between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """MixUp: lambda from Beta(alpha, alpha) once per step, with random partners or those of the reversed order.

    The examples of a step are mixed in mutual pairs, whatever its micro-batches are. `larger` takes
    max(lambda, 1 - lambda), as the released CR-ILD code does.
    """

    alpha: float = 1.0
    pairing: Literal["random", "reverse"] = "random"
    larger: bool = False

    def __post_init__(self) -> None:
        if self.alpha <= 0:
            raise UserError(f"alpha is {self.alpha:g}: give a number above 0")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of training with its own losses: layer matching, prediction matching, and label loss.

    A stage without label loss may train on supplementary texts, which need no labels; a hidden-state stage may have
    another teacher. `share` is its share of the steps, relative to the other stages. A stage with `least_steps` has at
    least that many, or three quarters of a shorter run; the others share the rest.
    """

    name: str = "train"
    matches: tuple[Match, ...] = ()
    prediction: Prediction | None = None
    hard_weight: float = 1.0
    share: float = 1.0
    least_steps: int = 0
    mixing: Mixing | None = None
    data: Literal["task", "supplementary"] = "task"
    teacher: Literal["task", "supplementary"] = "task"

    @property
    def needs_teacher(self) -> bool:
        """Whether a step of this stage needs a forward pass of the teacher."""
        return bool(self.matches) or self.prediction is not None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A distillation method: its stages, the student's initialisation and its classification head.

    `init` is the paper's, or with `init_measured` the best one measured; None where the default of the kind of model
    applies.
    """

    stages: tuple[Stage, ...]
    init: str | None = None
    init_measured: bool = False
    head: str = "fresh"


def part_name(part: Callable[..., Any] | Representation) -> str:
    """Return a part in readable form, with its fixed options: `forward(embedding=True)`.

    >>> part_name(partial(max, key=1))
    'max(key=1)'
    """
    if isinstance(part, Representation):
        return part.name
    if isinstance(part, partial):
        options = ", ".join(
            f"{key}={part_name(value) if callable(value) else repr(value)}" for key, value in part.keywords.items()
        )
        return f"{part_name(part.func)}({options})"
    return str(getattr(part, "__name__", type(part).__name__))
