"""The nouns of a distillation: Clock, Representation, Match, Prediction, Stage, Recipe.

A recipe is data: frozen dataclasses that name the parts (plain functions) a method is composed of. A paper is a
function that returns a `Recipe`; nothing here runs a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from torch import Tensor, nn

from stillery.faults import Fault

__all__ = [
    "Clock",
    "Distance",
    "Divergence",
    "Match",
    "Pair",
    "Pairs",
    "Prediction",
    "Project",
    "Recipe",
    "Representation",
    "Rows",
    "Shown",
    "Stage",
    "part_name",
]

Pairs = list[tuple[int, int]]
"""(student layer, teacher layer), 1-based; 0 is the embedding output."""

Rows = Literal["examples", "tokens"]
"""What one row of a representation is; a loss term is a mean over rows."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Where a run stands; anything random or scheduled is a pure function of it, so resuming is exact."""

    seed: int = 0
    stage: int = 0
    epoch: int = 0
    step: int = 0


class Shown(Protocol):
    """What one stack of a model showed on a batch: hidden states by layer (0 = embedding) and the token mask."""

    @property
    def hidden(self) -> Mapping[int, Tensor]:
        """Layer to states [batch, tokens, width]."""

    @property
    def mask(self) -> Tensor:
        """1 for real tokens, 0 for padding, [batch, tokens]."""


Pair = Callable[[int, int, Clock], Pairs]
"""(student layers, teacher layers, clock) -> which layers meet."""

Project = Callable[[int, int, int], nn.Module | None]
"""(student width, teacher width, pairs) -> a module (student, teacher, slot) -> (student, teacher), or None."""


class Distance(Protocol):
    """How far two representations are apart; a scalar."""

    def __call__(self, student: Tensor, teacher: Tensor, mask: Tensor | None = None, reduction: str = "mean") -> Tensor:
        """Compare rows of one shape; masked rows never count."""


class Divergence(Protocol):
    """How far two predictions are apart: the mean over the batch, a scalar."""

    def __call__(
        self, student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, square: bool = True
    ) -> Tensor:
        """Compare logits [batch, classes]."""


@dataclass(frozen=True, kw_only=True)
class Representation:
    """What of a layer is compared: `show(stack, layer)` gives the values and, for token rows, their mask."""

    name: str
    show: Callable[[Shown, int], tuple[Tensor, Tensor | None]]
    rows: Rows


@dataclass(frozen=True, kw_only=True)
class Match:
    """One comparison of layers: represent both, project, measure the distance of each pair, reduce, weigh."""

    name: str
    represent: Representation
    pair: Pair
    distance: Distance
    project: Project | None = None
    reduction: str = "mean"
    over_pairs: Literal["sum", "mean"] = "sum"
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Matching of the teacher's predictions (on regression: mean squared error of the outputs)."""

    divergence: Divergence
    temperature: float = 1.0
    square: bool = True
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise Fault(f"temperature is {self.temperature:g}: give a number above 0")
        if self.weight < 0:
            raise Fault(f"the weight of prediction matching is {self.weight:g}: keep hard_weight between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A share of the training steps with its own losses: matches, prediction matching, and the labels' loss."""

    name: str = "train"
    matches: tuple[Match, ...] = ()
    prediction: Prediction | None = None
    hard_weight: float = 1.0
    share: float = 1.0

    @property
    def needs_teacher(self) -> bool:
        """Whether a step of this stage runs the teacher."""
        return bool(self.matches) or self.prediction is not None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A method: its stages, how its student is initialised, and which head the student uses."""

    stages: tuple[Stage, ...]
    init: str = "even"
    head: str = "fresh"


def part_name(part: Callable[..., Any] | Representation) -> str:
    """A part as a reader would write it: `forward(embedding=True)`.

    >>> part_name(partial(max, key=1))
    'max(key=1)'
    """
    if isinstance(part, Representation):
        return part.name
    if isinstance(part, partial):
        options = ", ".join(f"{key}={value!r}" for key, value in part.keywords.items())
        return f"{part_name(part.func)}({options})"
    return str(getattr(part, "__name__", type(part).__name__))
