"""The one module that is trained: the student with its projections, giving every loss term of a stage.

A term is a mean over *rows* (examples, or real tokens). Of a micro-batch the module returns the part of that mean that
its own rows make up, `mean over its rows * its rows / the step's rows`, so that adding the parts up over the
accumulation window and over processes gives the term of the whole step, however it was cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from stillery.faults import Gathered
from stillery.models.family import Sizes, sizes
from stillery.models.trace import Trace, trace
from stillery.parts.divergence import logit_mse
from stillery.recipe import Clock, Match, Rows, Stage

__all__ = ["Losses", "Objective", "check_stages", "layers_needed", "match_term", "pairs_of"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """The weighted total and every term under its own name, unweighted."""

    total: Tensor
    terms: dict[str, Tensor]


def pairs_of(match: Match, student_layers: int, teacher_layers: int, clock: Clock) -> list[tuple[int, int]]:
    """The layers that meet in a match at this time."""
    return match.pair(student_layers, teacher_layers, clock)


def layers_needed(stage: Stage, student_layers: int, teacher_layers: int, clock: Clock) -> tuple[set[int], set[int]]:
    """The student's and the teacher's layers a step of the stage looks at."""
    pairs = [pair for match in stage.matches for pair in pairs_of(match, student_layers, teacher_layers, clock)]
    return {student for student, _ in pairs}, {teacher for _, teacher in pairs}


def check_stages(stages: Sequence[Stage], student: Sizes, teacher: Sizes | None, clock: Clock) -> None:
    """Everything about a recipe that could fail in the first batch, found before it."""
    faults = Gathered()
    for stage in stages:
        if teacher is None:
            if stage.needs_teacher:
                faults.add(f"stage {stage.name} matches a teacher, and none is given")
            continue
        if len({match.name for match in stage.matches}) != len(stage.matches):
            faults.add(f"stage {stage.name}: two matches have the same name, their logs would mix")
        for match in stage.matches:
            pairs = pairs_of(match, student.layers, teacher.layers, clock)
            if not pairs:
                faults.add(
                    f"match {match.name}: no layer pairs between a student of {student.layers} and a teacher of "
                    f"{teacher.layers} layers; use more --layers or another --method"
                )
            for i, j in pairs:
                if not (0 <= i <= student.layers and 0 <= j <= teacher.layers):
                    faults.add(
                        f"match {match.name}: pair ({i}, {j}) is outside the student's 0..{student.layers} and the "
                        f"teacher's 0..{teacher.layers}"
                    )
            if student.width != teacher.width and match.project is None:
                faults.add(
                    f"match {match.name}: the widths {student.width} and {teacher.width} differ, it has no projection"
                )
    faults.raise_any()


def match_term(
    match: Match, pairs: Sequence[tuple[int, int]], student: Trace, teacher: Trace, projection: nn.Module | None
) -> Tensor:
    """The value of a match on one batch: represent, project, measure each pair, reduce over pairs."""
    values = []
    for slot, (i, j) in enumerate(pairs):
        shown, mask = match.represent.show(student.encoder, i)
        target, _ = match.represent.show(teacher.encoder, j)
        if projection is not None:
            shown, target = projection(shown, target, slot)
        values.append(match.distance(shown, target, mask, match.reduction))
    stacked = torch.stack(values)
    return stacked.sum() if match.over_pairs == "sum" else stacked.mean()


class Objective(nn.Module):
    """Student and projections; calling it gives the losses of a batch in the stage the clock shows."""

    def __init__(
        self, student: PreTrainedModel, stages: Sequence[Stage], *, teacher: Sizes | None, regression: bool, seed: int
    ) -> None:
        super().__init__()
        self.student = student
        self.stages = tuple(stages)
        self.regression = regression
        self.depths = (sizes(student.config).layers, teacher.layers if teacher else 0)
        self.projections = nn.ModuleDict()
        clock, student_width = Clock(seed=seed), sizes(student.config).width
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for index, stage in enumerate(self.stages):
                for match in stage.matches:
                    assert teacher is not None
                    slots = len(pairs_of(match, *self.depths, clock))
                    built = match.project and match.project(student_width, teacher.width, slots)
                    if built:
                        self.projections[f"{index}-{match.name}"] = built

    def forward(
        self,
        inputs: Mapping[str, Tensor],
        labels: Tensor | None,
        teacher: Trace | None,
        clock: Clock,
        share: Mapping[Rows, float],
    ) -> Losses:
        """The losses of a micro-batch that holds `share` of its optimiser step's examples and tokens."""
        stage = self.stages[clock.stage]
        student_layers, _ = layers_needed(stage, *self.depths, clock)
        shown = trace(self.student, inputs, student_layers)
        terms: dict[str, Tensor] = {}
        weights: dict[str, float] = {}
        if stage.hard_weight:
            assert labels is not None
            terms["hard"] = self._hard(shown.logits, labels) * share["examples"]
            weights["hard"] = stage.hard_weight
        if stage.prediction is not None:
            assert teacher is not None
            divergence = logit_mse if self.regression else stage.prediction.divergence
            value = divergence(shown.logits, teacher.logits, stage.prediction.temperature, stage.prediction.square)
            terms["soft"] = value * share["examples"]
            weights["soft"] = stage.prediction.weight
        for match in stage.matches:
            assert teacher is not None
            key = f"{clock.stage}-{match.name}"
            projection = dict(self.projections.items()).get(key)
            value = match_term(match, pairs_of(match, *self.depths, clock), shown, teacher, projection)
            terms[match.name] = value if match.reduction == "sum" else value * share[match.represent.rows]
            weights[match.name] = match.weight
        total = torch.stack([terms[name] * weights[name] for name in terms]).sum()
        return Losses(total=total, terms=terms)

    def _hard(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.regression:
            return F.mse_loss(logits.float().squeeze(-1), labels.float())
        return F.cross_entropy(logits.float(), labels)
