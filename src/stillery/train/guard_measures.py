"""Measurements of the guards on a few examples: each term's share of the gradient, and the rank of projected states."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stillery.train.microbatches import MicroBatch
from stillery.train.objective import Losses, Objective
from stillery.train.step import Step
from stillery.train.step_plan import StepPlan

__all__ = [
    "PREDICTIONS",
    "Measures",
    "ProjectionRanks",
    "effective_rank",
    "few_of",
    "gradient_shares",
    "measure",
    "with_layers",
]

PREDICTIONS = ("hard", "soft")
"""Names of the terms that compare predictions; all others compare layers."""

Side = Literal["student", "teacher"]
_SIDES: tuple[Side, Side] = ("student", "teacher")


@dataclass(frozen=True, kw_only=True)
class ProjectionRanks:
    """Effective ranks of one side of one pair, before and after its projection.

    `teacher` is the rank of the teacher's rows of that pair before projection; `trained` is true if they pass through a
    trained projection too.
    """

    match: str
    pair: int
    side: Side
    before: float
    after: float
    teacher: float
    trained: bool


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The terms' shares of the gradient (empty if fewer than two have one), their weights, the projections' ranks."""

    shares: Mapping[str, float]
    weights: Mapping[str, float]
    projections: Sequence[ProjectionRanks]

    def record(self) -> dict[str, Any]:
        """The measurements as plain data, for the log."""
        return {
            "shares": {name: round(share, 5) for name, share in self.shares.items()},
            "weights": dict(self.weights),
            "projections": [asdict(one) for one in self.projections],
        }


def with_layers(shares: Mapping[str, float], most: float) -> dict[tuple[str, ...], float]:
    """Shares of single terms, and of all layer terms together where no single term takes more than `most`.

    Layer terms may share one weight, so together they can dominate the gradient too.
    """
    groups: dict[tuple[str, ...], float] = {(name,): share for name, share in shares.items()}
    layers = sorted(name for name in shares if name not in PREDICTIONS)
    if len(layers) > 1 and not any(share > most for share in shares.values()):
        groups[tuple(layers)] = sum(shares[name] for name in layers)
    return groups


def measure(step: Step, plan: StepPlan, micro_batch: MicroBatch) -> Measures:
    """Measure the objective on a micro-batch on the device, without changing its state or gradients.

    Only one of several processes measures, so this calls the objective and not the distributed module, in which
    processes wait for each other. The caller has set evaluation mode, which disables dropout and memory updates.
    """
    objective, projections = step.objective, list[ProjectionRanks]()
    tokens = micro_batch.batch.inputs.get("attention_mask")

    def watch(match: str, pair: int, before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]) -> None:
        teacher = effective_rank(_real(before[1], tokens))
        for side, rows, projected in zip(_SIDES, before, after, strict=True):
            # Without a trained projection a side loses no rank.
            if projected is not rows and projected.requires_grad:
                ranks = [effective_rank(_real(values, tokens)) for values in (rows, projected)]
                projections.append(
                    ProjectionRanks(
                        match=match, pair=pair, side=side, before=ranks[0], after=ranks[1], teacher=teacher,
                        trained=after[1].requires_grad,
                    )
                )  # fmt: skip

    losses: Losses = objective(plan, micro_batch, step.teacher_outputs(plan, micro_batch), watch=watch)
    scaler = step.accelerator.scaler
    scale = 1.0 if scaler is None else float(scaler.get_scale())
    stage = plan.stage
    # A hidden-state stage has layer terms only, so none can be dominated by another kind.
    predicts = bool(stage.hard_weight) or (stage.prediction is not None and bool(stage.prediction.weight))
    shares = gradient_shares(losses, _shared_parameters(objective), scale) if predicts else {}
    finite = [one for one in projections if math.isfinite(one.before + one.after + one.teacher)]
    return Measures(shares=shares, weights=losses.weights, projections=finite)


def gradient_shares(losses: Losses, parameters: Sequence[nn.Parameter], scale: float = 1.0) -> dict[str, float]:
    """Each weighted term's gradient norm divided by the sum of all, over the parameters shared by several terms.

    Empty where fewer than two terms have a gradient. `scale` keeps half-precision gradients from underflowing.
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
    """The effective number of directions that rows span: 1 where all are multiples of one row.

    It is the participation ratio of the second moments of the rows at unit length. They are not centred: rows that are
    equal up to a little noise have collapsed too, and centring would leave only the noise.
    """
    units = torch.nn.functional.normalize(rows.detach().float(), dim=-1)
    moments = units @ units.T if len(units) < units.shape[1] else units.T @ units
    return float(moments.trace().square() / moments.square().sum())


def few_of(micro_batch: MicroBatch, most: int) -> MicroBatch:
    """Return at most `most` evenly spaced examples of a micro-batch, with their share of the step's rows."""
    size = len(micro_batch.batch)
    if size <= most:
        return micro_batch
    chosen = torch.linspace(0, size - 1, most).long()
    batch, places, mixed = micro_batch.batch, chosen.tolist(), micro_batch.mixed
    few = replace(batch, index=batch.index[places], ids=tuple(batch.ids[place] for place in places)).mapped(
        lambda tensor: tensor[chosen]
    )
    return replace(
        micro_batch,
        batch=few,
        share={name: share * most / size for name, share in micro_batch.share.items()},
        # The choice of MixUp partners does not matter here.
        mixed=None if mixed is None else replace(mixed, partner=torch.arange(most).flip(0)),
        places=micro_batch.places[chosen],
        cached=None if micro_batch.cached is None else {one: rows[chosen] for one, rows in micro_batch.cached.items()},
    )


def _shared_parameters(objective: Objective) -> list[nn.Parameter]:
    """The student's trained parameters except embedding tables, whose gradients cost most and add little."""
    tables = {id(module.weight) for module in objective.student.modules() if isinstance(module, nn.Embedding)}
    return [one for one in objective.student.parameters() if one.requires_grad and id(one) not in tables]


def _real(rows: Tensor, mask: Tensor | None) -> Tensor:
    """Flatten rows to [rows, width], without padding where they are token rows."""
    if mask is not None and rows.ndim == 3 and rows.shape[:2] == mask.shape:
        rows = rows[mask.bool()]
    return rows.reshape(-1, rows.shape[-1])
