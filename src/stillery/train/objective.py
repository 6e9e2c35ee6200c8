"""The one module that is trained: the student with its projections, giving every loss term of a stage.

A term is a mean over *rows* (examples, real tokens, or pairs of real tokens). Of a micro-batch the module returns the
part of that mean that its own rows make up, `mean over its rows * its rows / the step's rows`, so that adding the parts
up over the accumulation window and over processes gives the term of the whole step, however it was cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from stillery.models.family import Sizes, sizes
from stillery.models.trace import Stack, Trace, trace
from stillery.parts._wide import wide
from stillery.parts.bank import Bank
from stillery.parts.distance import mse, released_attention_mse
from stillery.parts.transport import Transport
from stillery.recipe import Clock, Match, Need, Pairs, Rows, Stage
from stillery.terms import Kind, Mixed, flat_layers, judges_of, modules_of, stage_terms

__all__ = ["Losses", "Needs", "Objective", "needs_of", "pairs_of", "rows_of", "shown_by"]

Needs = dict[Need, set[int]]
"""Which layers a model has to show, by what of them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """The weighted total and every term under its own name, unweighted."""

    total: Tensor
    terms: dict[str, Tensor]


def pairs_of(match: Match, student_layers: int, teacher_layers: int, clock: Clock) -> Pairs:
    """The layers that meet in a match at this time."""
    return match.pair(student_layers, teacher_layers, clock)


def rows_of(match: Match) -> Rows:
    """What the value of a match is a mean over."""
    if match.judge is not None:
        return "examples"
    distance = match.distance.func if isinstance(match.distance, partial) else match.distance
    if distance is released_attention_mse:
        return "examples"
    over_keys = match.represent.rows == "tokens" and not match.represent.sized and not match.represent.joint
    rows: Rows = "pairs" if over_keys and distance is mse and match.reduction == "mean" else match.represent.rows
    if match.view == "mixed" and rows in ("tokens", "pairs"):
        return "mixed tokens" if rows == "tokens" else "mixed pairs"
    return rows


def needs_of(stage: Stage, student_layers: int, teacher_layers: int, clock: Clock, view: str) -> tuple[Needs, Needs]:
    """What the student and what the teacher has to show of one view of a batch in a step of the stage."""
    student, teacher = _nothing(), _nothing()
    for match in stage.matches:
        consistency = match.against == "student"
        for ours, theirs in pairs_of(match, student_layers, teacher_layers, clock):
            for need in match.represent.needs:
                # Consistency looks at the student's plain view too, and never at the teacher.
                if match.view == view or consistency:
                    student[need].update(flat_layers(ours))
                if match.view == view and not consistency:
                    teacher[need].update(flat_layers(theirs))
    return student, teacher


def _nothing() -> Needs:
    return {"hidden": set(), "query": set(), "key": set(), "value": set(), "feature": set()}


def shown_by(model: PreTrainedModel, inputs: Mapping[str, Tensor], needs: Needs, mixed: Mixed | None = None) -> Trace:
    """Run a model on a batch, or on its mixed examples, and keep what is needed."""
    return trace(
        model,
        mixed.inputs(inputs) if mixed else inputs,
        needs["hidden"],
        query=needs["query"],
        key=needs["key"],
        value=needs["value"],
        feature=needs["feature"],
        change=mixed,
    )


class Objective(nn.Module):
    """Student, projections and flows; calling it gives the losses of a batch in the stage the clock shows.

    `depths` are the student's and the teacher's, stage by stage.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        stages: Sequence[Stage],
        *,
        teacher: Sizes | None,
        kind: Kind = "classes",
        seed: int,
        examples: int = 0,
        supplementary: Sizes | None = None,
    ) -> None:
        super().__init__()
        self.student = student
        self.stages = tuple(stages)
        self.kind: Kind = kind
        own = sizes(student.config)
        teachers = [supplementary if stage.teacher == "supplementary" else teacher for stage in self.stages]
        self.depths = tuple((own.layers, teaching.layers if teaching else 0) for teaching in teachers)
        self.projections = nn.ModuleDict()
        self.flows = nn.ModuleDict()
        self.judges = nn.ModuleDict()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for index, (stage, teaching) in enumerate(zip(self.stages, teachers, strict=True)):
                if not stage.matches:
                    continue
                assert teaching is not None
                widths, depths = (own.width, teaching.width), self.depths[index]
                projections, flows = modules_of(stage, *depths, *widths, Clock(seed=seed))
                self.projections[str(index)] = nn.ModuleDict(projections)
                self.flows[str(index)] = nn.ModuleDict(flows)
                clock, classes = Clock(seed=seed, stage=index), int(student.config.num_labels or 1)
                judges = judges_of(stage, depths, widths, clock, classes=classes, examples=examples)
                for name, judge in judges.items():
                    if name not in self.judges:
                        self.judges[name] = judge

    def forward(
        self,
        inputs: Mapping[str, Tensor],
        labels: Tensor | None,
        teacher: Mapping[str, Trace],
        clock: Clock,
        share: Mapping[Rows, float],
        mixed: Mixed | None = None,
        index: Tensor | None = None,
    ) -> Losses:
        """The losses of a micro-batch that holds `share` of its optimiser step's rows.

        `teacher` is what the teacher showed of each view, `mixed` how the batch is mixed where the stage mixes,
        `index` where its examples are in the training part.
        """
        stage = self.stages[clock.stage]
        student = self._student(stage, inputs, clock, mixed)
        # The models may run in half precision; what they showed is measured in full.
        with torch.autocast(inputs["input_ids"].device.type, enabled=False):
            terms = stage_terms(
                stage,
                {view: _widened(shown) for view, shown in student.items()},
                {view: _widened(shown) for view, shown in teacher.items()},
                labels,
                clock,
                kind=self.kind,
                projections=self._of_stage(self.projections, clock),
                flows=self._of_stage(self.flows, clock),
                judges=dict(self.judges.items()),
                index=index,
                mixed=mixed,
            )
        weights = {"hard": stage.hard_weight, "soft": stage.prediction.weight if stage.prediction else 0.0}
        parts = {name: value * share["examples"] for name, value in terms.items() if name in weights}
        for match in stage.matches:
            weights[match.name] = match.weight_at(clock)
            value = terms[match.name]
            parts[match.name] = value if match.reduction == "sum" else value * share[rows_of(match)]
        total = torch.stack([part * weights[name] for name, part in parts.items()]).sum()
        return Losses(total=total, terms=parts)

    def _of_stage(self, modules: nn.ModuleDict, clock: Clock) -> dict[str, nn.Module]:
        key = str(clock.stage)
        return dict(modules[key].items()) if key in modules else {}  # type: ignore[operator]

    def _student(
        self, stage: Stage, inputs: Mapping[str, Tensor], clock: Clock, mixed: Mixed | None
    ) -> dict[str, Trace]:
        """What the student shows of each view the stage looks at."""
        shown, depths = {}, self.depths[clock.stage]
        if mixed is not None:
            shown["mixed"] = shown_by(self.student, inputs, needs_of(stage, *depths, clock, "mixed")[0], mixed)
        consistency = [match for match in stage.matches if match.against == "student"]
        trains_plain = stage.hard_weight or stage.prediction or any(match.view == "plain" for match in stage.matches)
        if trains_plain or consistency:
            needs, _ = needs_of(stage, *depths, clock, "plain")
            target_only = not trains_plain and all(match.detach for match in consistency)
            with torch.no_grad() if target_only else nullcontext():
                shown["plain"] = shown_by(self.student, inputs, needs)
        return shown

    def after_step(self, *, new_epoch: bool) -> None:
        """Change what remembers, once per optimiser step."""
        for bank in (judge for judge in self.judges.values() if isinstance(judge, Bank)):
            bank.update(new_epoch)
        flows = [flow for flow in self.flows.modules() if isinstance(flow, Transport)]
        for flow in flows:
            flow.update(new_epoch)
        shared = [flow for flow in flows if flow.shared]
        for weights in ("student", "teacher"):
            if shared:
                mean = torch.stack([getattr(flow, weights) for flow in shared]).mean(0)
                for flow in shared:
                    getattr(flow, weights).copy_(mean)


def _widened(shown: Trace) -> Trace:
    """A trace in at least float32."""
    encoder, decoder = (stack and _widened_stack(stack) for stack in (shown.encoder, shown.decoder))
    return replace(shown, logits=wide(shown.logits), encoder=encoder, decoder=decoder)


def _widened_stack(stack: Stack) -> Stack:
    shown: dict[str, Any] = {each.name: getattr(stack, each.name) for each in fields(stack)}
    for name, layers in shown.items():
        if isinstance(layers, Mapping):
            shown[name] = {layer: wide(kept) for layer, kept in layers.items()}
    return Stack(**shown)
