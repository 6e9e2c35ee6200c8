"""The nouns of a distillation: Clock, View, Representation, Match, Prediction, Stage, Recipe.

A recipe is data: frozen dataclasses that name the parts (plain functions) a method is composed of. A paper is a
function that returns a `Recipe`; nothing here runs a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from stillery.errors import UserError

__all__ = [
    "LEAST_STEPS",
    "MIXED_ROWS",
    "Around",
    "Batched",
    "Clock",
    "Combine",
    "Distance",
    "Divergence",
    "Judge",
    "Layers",
    "Match",
    "Measured",
    "Mixing",
    "Need",
    "Pair",
    "Pairs",
    "Prediction",
    "Project",
    "Recipe",
    "Remembers",
    "Representation",
    "Rows",
    "Schedule",
    "Shown",
    "StackName",
    "Stage",
    "View",
    "part_name",
]

_DECODER_SEED = 0xDEC0DE

LEAST_STEPS = 1000
"""Steps that prediction distillation after a stage of layers has at least, in a run that is long enough."""

Layers = int | tuple[int, ...]
"""A layer, 1-based, 0 being the embedding output; or several that are compared as one."""

Pairs = Sequence[tuple[Layers, Layers]]
"""(student, teacher) layers that meet."""

StackName = Literal["encoder", "decoder"]
"""A stack of layers; a classifier has an encoder, a model that writes text has a decoder, or both."""

Rows = Literal[
    "examples", "targets",
    "tokens", "pairs", "decoder tokens", "decoder pairs", "causal pairs", "cross pairs",
    "mixed tokens", "mixed pairs", "mixed decoder tokens", "mixed decoder pairs", "mixed causal pairs",
    "mixed cross pairs",
]  # fmt: skip
"""What a loss term is a mean over: examples; target tokens that are scored; real tokens, or pairs of those of one
example, of the encoder or the decoder: all pairs, a token with those before it and itself (causal), or one of the
decoder with one of the encoder (cross); and all of these of mixed examples."""

MIXED_ROWS: Mapping[Rows, Rows] = {
    "tokens": "mixed tokens",
    "pairs": "mixed pairs",
    "decoder tokens": "mixed decoder tokens",
    "decoder pairs": "mixed decoder pairs",
    "causal pairs": "mixed causal pairs",
    "cross pairs": "mixed cross pairs",
}
"""Rows of examples, and those of mixed ones."""

Need = Literal["hidden", "query", "key", "value", "feature", "cross_query", "cross_key"]
"""What of a layer a model has to show: its output state, the queries, keys and values of its attention, or, of the last
layer, what the final classifier receives. The `cross` ones are of a decoder's attention to the encoder."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Where a run stands; anything random or scheduled is a pure function of it, so resuming is exact.

    `step` counts optimiser steps of the run from 0, `stage_step` those of the stage.
    """

    seed: int = 0
    stage: int = 0
    epoch: int = 0
    step: int = 0
    stage_step: int = 0
    stage_steps: int = 1
    stage_epochs: int = 1


class Shown(Protocol):
    """What one stack of a model showed on a batch, by layer."""

    @property
    def hidden(self) -> Mapping[int, Tensor]:
        """States [batch, tokens, width]; 0 is the embedding output."""

    @property
    def query(self) -> Mapping[int, Tensor]:
        """Queries of all heads side by side, [batch, tokens, width]."""

    @property
    def key(self) -> Mapping[int, Tensor]:
        """Keys, as the queries."""

    @property
    def value(self) -> Mapping[int, Tensor]:
        """Values, as the queries."""

    @property
    def feature(self) -> Mapping[int, Tensor]:
        """Of the last layer: what the final linear classifier receives, [batch, width]."""

    @property
    def bias(self) -> Mapping[int, Tensor]:
        """What a family adds to the scores before its softmax (MPNet's relative positions), where it does."""

    @property
    def rotated_query(self) -> Mapping[int, Tensor]:
        """The queries of the scores, where a family turns them by their positions."""

    @property
    def rotated_key(self) -> Mapping[int, Tensor]:
        """The keys of the scores, as the queries."""

    @property
    def cross_query(self) -> Mapping[int, Tensor]:
        """Queries of a decoder's attention to the encoder, [batch, tokens, width]."""

    @property
    def cross_key(self) -> Mapping[int, Tensor]:
        """The keys it looks at, [batch, the encoder's tokens, width]."""

    @property
    def cross_mask(self) -> Tensor | None:
        """1 for the encoder's real tokens, where there is such an attention."""

    @property
    def heads(self) -> int:
        """Attention heads."""

    @property
    def key_heads(self) -> int | None:
        """How many heads of keys and values there are, where several queries' heads share one."""

    @property
    def scale(self) -> float | None:
        """What QK^T is multiplied by; 1 / sqrt of a head's size where None."""

    @property
    def causal(self) -> bool:
        """Whether a token looks at none behind it."""

    @property
    def depth(self) -> int:
        """How many layers the stack has, shown or not."""

    @property
    def mask(self) -> Tensor:
        """1 for real tokens, 0 for padding, [batch, tokens]."""


@dataclass(frozen=True, eq=False)
class View:
    """A representation of one side: values whose last axis is a row, which rows count, and which keys of a row do."""

    values: Tensor
    mask: Tensor | None = None
    key_mask: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Representation:
    """What of a layer is compared.

    `show(stack, layer)` gives the View; a `joint` one takes a tuple of layers instead. `rows` says what its rows are,
    `needs` what the models have to show, and `sized` whether a row is as wide as the model and so can be projected.
    `heads` says into how many its rows are cut: each model's own number, the teacher's on both sides, or a number.
    With `raw_last` the last state is the one before the norm behind the last layer, in families that have one.
    `looks_at` says which tokens decide: the first, the mean of the real ones, any of the real ones, or padding too.
    `show_all(stack, layers)`, where it is there, gives the rows of several layers in one go, [layers, batch, width].
    What holds `together` depends on who shares a batch, or on its padding: cutting a step in micro-batches changes it.
    `reduction` is how a distance over elements is reduced where nothing is said and rows have unequal numbers of them.
    `crossed` is the same of a decoder's attention to the encoder, for what is compared of its attention to itself.
    """

    name: str
    show: Callable[..., View]
    rows: Rows
    needs: tuple[Need, ...] = ("hidden",)
    joint: bool = False
    sized: bool = True
    heads: int | Literal["own", "teacher"] | None = None
    raw_last: bool = False
    looks_at: Literal["first", "mean", "real", "all"] = "all"
    show_all: Callable[[Shown, Sequence[int]], Tensor] | None = None
    together: bool = False
    reduction: str | None = None
    crossed: Representation | None = None


Pair = Callable[[int, int, Clock], Pairs]
"""(student layers, teacher layers, clock) -> which layers meet."""

Project = Callable[[Sequence[int], Sequence[int]], nn.Module | None]
"""(student width, teacher width of each pair) -> a module (student, teacher, slot) -> (student, teacher), or None."""

Combine = Callable[[Tensor, Sequence[Tensor]], Tensor]
"""(student rows, rows of several teacher layers) -> the rows the student is compared with."""


@dataclass(frozen=True, kw_only=True)
class Around:
    """What a judge is built for: widths of each pair's sides, outputs of the models, examples of the training part."""

    student: Sequence[int]
    teacher: Sequence[Sequence[int]]
    classes: int
    examples: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Batched:
    """What a judge may ask about a batch: labels, places in the training part, which match asks, kind of task, when."""

    labels: Tensor | None
    index: Tensor
    match: str
    regression: bool
    clock: Clock


Judge = Callable[[Around], nn.Module]
"""-> a module ([(student rows, [teacher rows of each layer]) of each pair], Batched) -> scalar, mean over examples."""


@runtime_checkable
class Remembers(Protocol):
    """A judge or a flow with a memory: it is changed once per optimiser step, and saved with the run."""

    def update(self, new_epoch: bool) -> None:
        """Take over what this step saw."""


Schedule = Callable[[Clock], float]
"""A weight that changes with the clock."""


Measured = tuple[Tensor, Tensor]
"""A sum and how many it is over: what a distance comes to is the one divided by the other, of a whole step."""

Distance = Callable[..., Tensor | Measured]
"""(student rows, teacher rows, mask=, reduction=, key_mask=) -> how far apart: the mean over what counts, or its sum
and count. Of the keywords it takes those it has a use for; without `key_mask` no keys of a row are left out."""


class Divergence(Protocol):
    """How far two predictions are apart: the mean over the batch, a scalar."""

    def __call__(
        self, student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, square: bool = True
    ) -> Tensor:
        """Compare logits [batch, classes]."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """One comparison of layers: represent both, project, measure the distance of each pair, reduce, weigh.

    The layers are those of the named `stack` of both models, of their first where none is named.

    Where a pair names several layers on a side, `combine` makes one target of the teacher's; without it they are laid
    side by side, before the projection. `flow` gives every pair its weight in the sum (transport).
    A `judge` measures all pairs itself, in place of projection and distance, and may have weights and a memory; matches
    that name one `shared` judge have it in common, over stages too.

    With the view `mixed` the models see mixed examples (MixUp). A match `against` the student compares what it shows on
    mixed examples with the mix of what it shows on the plain ones (consistency), `detach`ed or not; of a pair only the
    student's layer counts.
    """

    name: str
    represent: Representation
    pair: Pair
    distance: Distance
    project: Project | None = None
    combine: Combine | None = None
    flow: Callable[[int, int], nn.Module] | None = None
    judge: Judge | None = None
    shared: str | None = None
    reduction: str = "mean"
    over_pairs: Literal["sum", "mean"] = "sum"
    weight: float | Schedule = 1.0
    view: Literal["plain", "mixed"] = "plain"
    against: Literal["teacher", "student"] = "teacher"
    detach: bool = True
    stack: StackName | None = None

    def pairs(self, student_layers: int, teacher_layers: int, clock: Clock) -> Pairs:
        """The layers that meet at this time; what is drawn for a decoder is independent of what is for an encoder."""
        own = replace(clock, seed=clock.seed + _DECODER_SEED) if self.stack == "decoder" else clock
        return self.pair(student_layers, teacher_layers, own)

    def weight_at(self, clock: Clock) -> float:
        """The weight at this time."""
        return self.weight(clock) if callable(self.weight) else self.weight


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Matching of the teacher's predictions (of a score: mean squared error; of several labels: of each)."""

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
    """How examples are mixed: lambda of Beta(alpha, alpha) once a step, with partners drawn or in reversed order.

    The examples of a step are mixed two by two, each with the other, whatever that step is cut into.
    `larger` takes max(lambda, 1 - lambda), as the released CR-ILD code does.
    """

    alpha: float = 1.0
    pairing: Literal["random", "reverse"] = "random"
    larger: bool = False

    def __post_init__(self) -> None:
        if self.alpha <= 0:
            raise UserError(f"alpha is {self.alpha:g}: give a number above 0")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A share of the training steps with its own losses: matches, prediction matching, and the labels' loss.

    A stage without the labels' loss may train on supplementary texts, which need no labels; one of layers alone may
    have another teacher. `share` is its part of the steps among the stages; a stage with `least_steps` has at least as
    many, or three quarters of a shorter run, and the others share what is left.
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
        """Whether a step of this stage runs the teacher."""
        return bool(self.matches) or self.prediction is not None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A method: its stages, how its student is initialised, and which head the student uses.

    An `init` is the paper's; where it is None the paper does not say how a student starts, and the kind of model
    decides.
    """

    stages: tuple[Stage, ...]
    init: str | None = None
    head: str = "fresh"


def part_name(part: Callable[..., Any] | Representation) -> str:
    """A part as a reader would write it: `forward(embedding=True)`.

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
