"""The one module that is trained: the student with its projections, giving every loss term of a stage.

A term is a mean over *rows* (examples, real tokens, pairs of those, or scored targets). Of a micro-batch the module
returns the part of that mean that its own rows make up, `mean over its rows * its rows / the step's rows`, so that
adding the parts up over the accumulation window and over processes gives the whole step's term, however it was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from stillery.losses import BY_TOKEN, Kind, Mixed, judges_of, modules_of, stage_counts, stage_terms
from stillery.models.family import stack_sizes
from stillery.models.trace import Stack, Trace
from stillery.parts._wide import wide
from stillery.recipe import Clock, Match, Remembers, Rows, Stage
from stillery.train.step_plan import ModelSizes, Needs, between_of, needs_of, pairs_of, rows_of, shown_by

__all__ = ["Losses", "Needs", "Objective", "Watch", "needs_of", "pairs_of", "rows_of", "shown_by"]


Watch = Callable[[str, int, tuple[Tensor, Tensor], tuple[Tensor, Tensor]], None]
"""Is given a match, the number of its pair, and the student's and the teacher's rows before and behind a projection."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """The weighted total, every term under its own name, unweighted, and the weights."""

    total: Tensor
    terms: dict[str, Tensor]
    weights: dict[str, float]


class Objective(nn.Module):
    """Student, projections and flows; calling it gives the losses of a batch in the stage the clock shows.

    `teacher` are the sizes of the teacher's one stack, or of each of its stacks; `between` are they and the student's,
    stage by stage. With `drop_start` no layers are matched where a decoder starts with its padding token.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        stages: Sequence[Stage],
        *,
        teacher: ModelSizes | None,
        kind: Kind = "classes",
        seed: int,
        examples: int = 0,
        supplementary: ModelSizes | None = None,
        drop_start: bool = False,
    ) -> None:
        super().__init__()
        self.student = student
        self.stages = tuple(stages)
        self.kind: Kind = kind
        self.drop_start = drop_start
        own = stack_sizes(student.config)
        self.first_stack = next(iter(own))
        teachers = [supplementary if stage.teacher == "supplementary" else teacher for stage in self.stages]
        self.between = tuple(between_of(own, teaching) if teaching else {} for teaching in teachers)
        self.projections = nn.ModuleDict()
        self.flows = nn.ModuleDict()
        self.judges = nn.ModuleDict()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for index, (stage, between) in enumerate(zip(self.stages, self.between, strict=True)):
                if not stage.matches:
                    continue
                projections, flows = modules_of(stage, between, Clock(seed=seed))
                self.projections[str(index)] = nn.ModuleDict(projections)
                self.flows[str(index)] = nn.ModuleDict(flows)
                clock, classes = Clock(seed=seed, stage=index), int(student.config.num_labels or 1)
                judges = judges_of(stage, between, clock, classes=classes, examples=examples)
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
        generated: bool = False,
        watch: Watch | None = None,
        counts: Mapping[str, Tensor] | None = None,
    ) -> Losses:
        """The losses of a micro-batch that holds `share` of its optimiser step's rows.

        `teacher` is what the teacher showed of each view, `mixed` how the batch is mixed where the stage mixes,
        `index` where its examples are in the training part. Targets that the student wrote itself (`generated`) are
        no labels to learn. `watch` is given what goes into every projection and what comes out.
        `counts` are those of the whole step, of matches that count themselves (`counts_of`).
        """
        stage = self.stages[clock.stage]
        stage = replace(stage, hard_weight=0.0) if generated else stage
        held = {match.name: self._held(match, share) for match in stage.matches}
        student = self._student(stage, inputs, clock, mixed)
        # The models may run in half precision; what they showed is measured in full. Logits over a vocabulary are
        # widened by who measures them, a few tokens at a time: a wide copy would be the largest tensor of the step.
        keep = self.kind in BY_TOKEN
        projections = self._of_stage(self.projections, clock)
        if watch is not None:
            projections = {name: _Watched(name, one, watch) for name, one in projections.items()}
        with torch.autocast(inputs["input_ids"].device.type, enabled=False):
            terms = stage_terms(
                stage,
                {view: _widened(shown, keep_logits=keep) for view, shown in student.items()},
                {view: _widened(shown, keep_logits=keep) for view, shown in teacher.items()},
                labels,
                clock,
                kind=self.kind,
                projections=projections,
                flows={
                    name: partial(flow, share=held[name]) if _takes_share(flow) else flow
                    for name, flow in self._of_stage(self.flows, clock).items()
                },
                judges=dict(self.judges.items()),
                index=index,
                mixed=mixed,
                counts=counts,
            )
        weights = {"hard": stage.hard_weight, "soft": stage.prediction.weight if stage.prediction else 0.0}
        predicted: Rows = "targets" if self.kind in BY_TOKEN else "examples"
        parts = {name: _part(value, share[predicted]) for name, value in terms.items() if name in weights}
        for match in stage.matches:
            weights[match.name] = match.weight_at(clock)
            parts[match.name] = _part(terms[match.name], held[match.name])
        (first, value), *others = parts.items()
        total = value * weights[first]
        for name, value in others:
            total = torch.add(total, value, alpha=weights[name])
        return Losses(total=total, terms=parts, weights={name: weights[name] for name in parts})

    def _held(self, match: Match, share: Mapping[Rows, float]) -> float:
        """By what a micro-batch's value of a match is to be multiplied, so that all of a step add up."""
        if all(held == 1 for held in share.values()):
            return 1.0
        rows = rows_of(match, self.first_stack)
        if rows in ("sum", "counted"):
            # A process left without examples runs one that does not count.
            return 1.0 if share["examples"] else 0.0
        return share[rows]  # type: ignore[index]

    def counts_itself(self, stage: int) -> bool:
        """Whether a match of a stage counts what it is a mean over: a step that is cut has to be counted before."""
        return any(rows_of(match, self.first_stack) == "counted" for match in self.stages[stage].matches)

    @torch.no_grad()
    def counts_of(
        self, inputs: Mapping[str, Tensor], teacher: Mapping[str, Trace], clock: Clock, mixed: Mixed | None
    ) -> dict[str, Tensor]:
        """What those matches count in a micro-batch, pair by pair."""
        stage = self.stages[clock.stage]
        student = self._student(stage, inputs, clock, mixed)
        counting = tuple(match for match in stage.matches if rows_of(match, self.first_stack) == "counted")
        with torch.autocast(inputs["input_ids"].device.type, enabled=False):
            return stage_counts(
                replace(stage, matches=counting),
                {view: _widened(shown, keep_logits=True) for view, shown in student.items()},
                {view: _widened(shown, keep_logits=True) for view, shown in teacher.items()},
                clock,
                projections=self._of_stage(self.projections, clock),
                mixed=mixed,
            )

    def _of_stage(self, modules: nn.ModuleDict, clock: Clock) -> dict[str, nn.Module]:
        key = str(clock.stage)
        return dict(modules[key].items()) if key in modules else {}  # type: ignore[operator]

    def _student(
        self, stage: Stage, inputs: Mapping[str, Tensor], clock: Clock, mixed: Mixed | None
    ) -> dict[str, Trace]:
        """What the student shows of each view the stage looks at."""
        shown, between = {}, self.between[clock.stage]
        if mixed is not None:
            needs, _ = needs_of(stage, between, clock, "mixed")
            shown["mixed"] = shown_by(self.student, inputs, needs, mixed, self.drop_start, logits=False)
        consistency = [match for match in stage.matches if match.against == "student"]
        trains_plain = stage.hard_weight or stage.prediction or any(match.view == "plain" for match in stage.matches)
        if trains_plain or consistency:
            needs, _ = needs_of(stage, between, clock, "plain")
            target_only = not trains_plain and all(match.detach for match in consistency)
            with torch.no_grad() if target_only else nullcontext():
                predicts = bool(stage.hard_weight) or stage.prediction is not None
                shown["plain"] = shown_by(self.student, inputs, needs, None, self.drop_start, logits=predicts)
        return shown

    def after_step(self, *, new_epoch: bool) -> None:
        """Change what remembers, once per optimiser step."""
        for memory in (judge for judge in self.judges.values() if isinstance(judge, Remembers)):
            memory.update(new_epoch)
        shared: dict[str | None, list[nn.Module]] = {}
        for index, stage in enumerate(self.stages):
            flows = self._of_stage(self.flows, Clock(stage=index))
            for match in stage.matches:
                flow = flows.get(match.name)
                if flow is not None and isinstance(flow, Remembers):
                    flow.update(new_epoch)
                    if getattr(flow, "shared", False):
                        shared.setdefault(match.stack, []).append(flow)
        for alike in shared.values():
            for weights in ("student", "teacher"):
                mean = torch.stack([getattr(flow, weights) for flow in alike]).mean(0)
                for flow in alike:
                    getattr(flow, weights).copy_(mean)


def _takes_share(flow: nn.Module) -> bool:
    """Whether a flow wants to know which share of the step's rows it is given: one found by all processes together."""
    return "share" in signature(flow.forward).parameters


class _Watched(nn.Module):
    """A projection that tells what it is given and what it makes of it; every pair goes through it by itself."""

    def __init__(self, name: str, projection: nn.Module, watch: Watch) -> None:
        super().__init__()
        self.name, self.projection, self.watch = name, projection, watch

    def forward(self, student: Tensor, teacher: Tensor, slot: int) -> tuple[Tensor, Tensor]:
        """Project the rows of pair number `slot`."""
        made: tuple[Tensor, Tensor] = self.projection(student, teacher, slot)
        self.watch(self.name, slot, (student, teacher), made)
        return made


def _part(value: Tensor, share: float) -> Tensor:
    """A micro-batch's part of a step's term; most steps are one micro-batch, and the whole needs no arithmetic."""
    return value if share == 1 else value * share


def _widened(shown: Trace, *, keep_logits: bool) -> Trace:
    """A trace in at least float32; its logits as they are if asked for."""
    encoder, decoder = (stack and _widened_stack(stack) for stack in (shown.encoder, shown.decoder))
    logits = shown.logits if keep_logits else wide(shown.logits)
    return replace(shown, logits=logits, encoder=encoder, decoder=decoder)


def _widened_stack(stack: Stack) -> Stack:
    shown: dict[str, Any] = {each.name: getattr(stack, each.name) for each in fields(stack)}
    for name, layers in shown.items():
        if isinstance(layers, Mapping):
            shown[name] = _widened_layers(layers)
    return Stack(**shown)


def _widened_layers(layers: Mapping[int, Tensor]) -> Mapping[int, Tensor]:
    """The same in at least float32; rows of one token, as a store shows them, all at once, for each costs as much."""
    kinds = {(kept.dtype, kept.shape) for kept in layers.values()}
    if len(layers) > 1 and len(kinds) == 1:
        ((dtype, shape),) = kinds
        if dtype in (torch.float16, torch.bfloat16) and len(shape) == 3 and shape[1] == 1:
            return dict(zip(layers, wide(torch.stack(list(layers.values()))), strict=True))
    return {layer: wide(kept) for layer, kept in layers.items()}
