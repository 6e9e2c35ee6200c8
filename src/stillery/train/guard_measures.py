"""What guards measure on a few examples: each term's share of the gradient, and the rank of projected states."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from stillery.recipe import Clock
from stillery.train.microbatches import Part
from stillery.train.objective import Losses, Objective
from stillery.train.step import Step

__all__ = ["Measured", "Projected", "effective_rank", "few_of", "gradient_shares", "measured"]

Side = Literal["student", "teacher"]
_SIDES: tuple[Side, Side] = ("student", "teacher")


@dataclass(frozen=True, kw_only=True)
class Projected:
    """Effective ranks around a projection, of one side of one pair: of its rows before and after it.

    `teacher` is the rank of the teacher's rows of that pair as the teacher shows them; `moves` says that they are
    projected too, and by a map that is trained.
    """

    match: str
    pair: int
    side: Side
    before: float
    after: float
    teacher: float
    moves: bool


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The terms' shares of the gradient, none where fewer than two have one; their weights; and the projections."""

    shares: Mapping[str, float]
    weights: Mapping[str, float]
    projections: Sequence[Projected]


def measured(step: Step, part: Part, clock: Clock) -> Measured:
    """Measure the objective on a micro-batch, which is on the device; nothing of it or its gradients is changed.

    Of several processes this one measures alone, so the module is not asked in which they wait for each other. The
    caller has turned dropout off and what remembers with it: both are of training mode only.
    """
    objective, projections = step.objective, list[Projected]()
    tokens = part.batch.inputs.get("attention_mask")

    def watch(match: str, pair: int, before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]) -> None:
        teacher = effective_rank(_real(before[1], tokens))
        for side, given, made in zip(_SIDES, before, after, strict=True):
            # A side that is left as it is, or whose map is not trained, loses nothing.
            if made is not given and made.requires_grad:
                ranks = [effective_rank(_real(rows, tokens)) for rows in (given, made)]
                projections.append(
                    Projected(
                        match=match, pair=pair, side=side, before=ranks[0], after=ranks[1], teacher=teacher,
                        moves=after[1].requires_grad,
                    )
                )  # fmt: skip

    losses: Losses = objective(
        part.batch.inputs, part.batch.labels, step.shown(part, clock), clock, part.share, part.mixed, part.places,
        watch=watch,
    )  # fmt: skip
    scaler = step.accelerator.scaler
    scale = 1.0 if scaler is None else float(scaler.get_scale())
    stage = objective.stages[clock.stage]
    # What is learnt of layers alone is all there is in a stage of layers; no term of it can be drowned by another.
    predicts = bool(stage.hard_weight) or (stage.prediction is not None and bool(stage.prediction.weight))
    shares = gradient_shares(losses, _weights_of_layers(objective), scale) if predicts else {}
    finite = [one for one in projections if math.isfinite(one.before + one.after + one.teacher)]
    return Measured(shares=shares, weights=losses.weights, projections=finite)


def gradient_shares(losses: Losses, parameters: Sequence[nn.Parameter], scale: float = 1.0) -> dict[str, float]:
    """The norm of each weighted term's gradient by the sum of those norms, on the parameters that several terms reach.

    Empty where fewer than two terms have a gradient. `scale` keeps gradients in half precision from vanishing.
    """
    terms = {name: term for name, term in losses.terms.items() if losses.weights[name] and term.requires_grad}
    squares: dict[str, list[Tensor | None]] = {}
    for left, (name, term) in zip(reversed(range(len(terms))), terms.items(), strict=True):
        found = torch.autograd.grad(term * scale, parameters, retain_graph=left > 0, allow_unused=True)
        squares[name] = [None if gradient is None else gradient.float().square().sum() for gradient in found]
    several = [sum(one is not None for one in reached) > 1 for reached in zip(*squares.values(), strict=True)]
    norms: dict[str, float] = {}
    for name, each in squares.items():
        shared = [one for one, counts in zip(each, several, strict=True) if counts and one is not None]
        if shared:
            norms[name] = abs(losses.weights[name]) * math.sqrt(float(torch.stack(shared).sum()))
    whole = sum(norms.values())
    if len(norms) < 2 or not whole or not math.isfinite(whole):
        return {}
    return {name: norm / whole for name, norm in norms.items()}


@torch.no_grad()
def effective_rank(rows: Tensor) -> float:
    """Over how many directions rows are spread: 1 where all are multiples of one, however long.

    The participation ratio of the second moments of the rows at unit length. They are not centred: rows that are all
    the same but for a little noise are as lost as rows on one line, and centred only the noise would be seen.
    """
    units = torch.nn.functional.normalize(rows.detach().float(), dim=-1)
    moments = units @ units.T if len(units) < units.shape[1] else units.T @ units
    return float(moments.trace().square() / moments.square().sum())


def few_of(part: Part, most: int) -> Part:
    """At most so many examples of a micro-batch, from all over it, with their share of the step's rows."""
    size = len(part.batch)
    if size <= most:
        return part
    chosen = torch.linspace(0, size - 1, most).long()
    batch, places, mixed = part.batch, chosen.tolist(), part.mixed
    few = replace(
        batch,
        index=batch.index[places],
        ids=tuple(batch.ids[place] for place in places),
        inputs={name: tensor[chosen] for name, tensor in batch.inputs.items()},
        labels=None if batch.labels is None else batch.labels[chosen],
    )
    return replace(
        part,
        batch=few,
        share={name: share * most / size for name, share in part.share.items()},
        # Who is mixed with whom makes no difference here.
        mixed=None if mixed is None else replace(mixed, partner=torch.arange(most).flip(0)),
        places=part.places[chosen],
        kept=None if part.kept is None else {what: rows[chosen] for what, rows in part.kept.items()},
    )


def _weights_of_layers(objective: Objective) -> list[nn.Parameter]:
    """The student's trained parameters without its tables of embeddings, whose gradients cost most and add little."""
    tables = {id(module.weight) for module in objective.student.modules() if isinstance(module, nn.Embedding)}
    return [one for one in objective.student.parameters() if one.requires_grad and id(one) not in tables]


def _real(rows: Tensor, mask: Tensor | None) -> Tensor:
    """The rows of real tokens, where they are of tokens, one after the other."""
    if mask is not None and rows.ndim == 3 and rows.shape[:2] == mask.shape:
        rows = rows[mask.bool()]
    return rows.reshape(-1, rows.shape[-1])
