"""The training objective: the student with its projections, as one module that returns the loss terms of a stage.

A term is a mean over *rows* (examples, real tokens, pairs of those, or scored targets). For a micro-batch the module
returns the contribution of its own rows, `mean over its rows * its rows / the step's rows`, so that the sum over the
micro-batches of all processes is the term of the whole step, however it was divided.
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

from stillery.losses import BY_TOKEN, BatchFacts, Kind, StageModules, judges_of, modules_of, stage_counts, stage_terms
from stillery.models.family import stack_sizes
from stillery.models.wanted_outputs import Stack, Trace
from stillery.parts._wide import wide
from stillery.recipe import Clock, Rows, Stage, Stateful
from stillery.train.forward_pass import outputs_of
from stillery.train.microbatches import MicroBatch
from stillery.train.step_plan import ModelSizes, Needs, StepPlan, StepPlanner, between_of, pairs_of

__all__ = ["Losses", "Needs", "Objective", "Watch", "pairs_of"]


Watch = Callable[[str, int, tuple[Tensor, Tensor], tuple[Tensor, Tensor]], None]
"""Called with a match, its pair's number, and the student's and the teacher's rows before and after a projection."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """The weighted total, the unweighted terms by name, and the weights."""

    total: Tensor
    terms: dict[str, Tensor]
    weights: dict[str, float]


class Objective(nn.Module):
    """Student, projections, flows and criteria; its forward pass returns the losses of a micro-batch.

    `teacher` are the sizes of the teacher's one stack, or of each of its stacks; `between` are they and the student's,
    by stage. With `drop_start` layers are not matched at a decoder start token that is the padding token. The hard loss
    of an example is multiplied by the weight of its class in `class_weights`. All settings of the losses are given
    here, so that a step needs only its batch and its plan.
    """

    class_weights: Tensor | None

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
        class_weights: Tensor | None = None,
    ) -> None:
        super().__init__()
        # Not saved: they are computed from the training split.
        self.register_buffer("class_weights", class_weights, persistent=False)
        self.student = student
        self.stages = tuple(stages)
        self.kind: Kind = kind
        self.drop_start = drop_start
        own = stack_sizes(student.config)
        teachers = [supplementary if stage.teacher == "supplementary" else teacher for stage in self.stages]
        self.between = tuple(between_of(own, sizes) if sizes else {} for sizes in teachers)
        self.projections = nn.ModuleDict()
        self.flows = nn.ModuleDict()
        self.judges = nn.ModuleDict()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for index, stage in enumerate(self.stages):
                if stage.matches:
                    self._add_modules(index, stage, seed, examples)
        first_stack = next(iter(own))
        self._planners = [
            StepPlanner(stage, between, first_stack) for stage, between in zip(self.stages, self.between, strict=True)
        ]

    def _add_modules(self, index: int, stage: Stage, seed: int, examples: int) -> None:
        """Create the projections, flows and criteria of a stage; a shared criterion is created once."""
        projections, flows = modules_of(stage, self.between[index], Clock(seed=seed))
        self.projections[str(index)] = nn.ModuleDict(projections)
        self.flows[str(index)] = nn.ModuleDict(flows)
        clock, classes = Clock(seed=seed, stage=index), int(self.student.config.num_labels or 1)
        judges = judges_of(stage, self.between[index], clock, classes=classes, examples=examples)
        for name, judge in judges.items():
            if name not in self.judges:
                self.judges[name] = judge

    def plan(self, clock: Clock) -> StepPlan:
        """Return the plan of the step at this time: matched layers, required outputs, rows of the loss terms."""
        return self._planners[clock.stage](clock)

    def forward(
        self,
        plan: StepPlan,
        micro_batch: MicroBatch,
        teacher: Mapping[str, Trace],
        counts: Mapping[str, Tensor] | None = None,
        watch: Watch | None = None,
    ) -> Losses:
        """Return the losses of a micro-batch, as its contribution to the optimiser step.

        `teacher` are the teacher's outputs by view. `counts` are the denominators over the whole step of matches whose
        distance returns its own count (`counts_of`). `watch` is called with the inputs and outputs of every projection.
        """
        batch, share = micro_batch.batch, micro_batch.share
        plan = plan.without_labels() if batch.generated else plan
        factors = self._factors(plan, share)
        student = self._student(plan, micro_batch)
        # The models may run in half precision; losses are computed in float32. Logits over a vocabulary are upcast
        # in the loss, a few tokens at a time: a full float32 copy would be the largest tensor of the step.
        keep = self.kind in BY_TOKEN
        facts = BatchFacts(
            labels=batch.labels,
            index=micro_batch.places,
            mixed=micro_batch.mixed,
            kind=self.kind,
            class_weights=self.class_weights,
        )
        with torch.autocast(batch.inputs["input_ids"].device.type, enabled=False):
            terms = stage_terms(
                plan.stage,
                plan.pairs,
                _widened(student, keep_logits=keep),
                _widened(teacher, keep_logits=keep),
                facts,
                plan.clock,
                self._stage_modules(plan.clock, factors, watch),
                counts,
            )
        parts = {name: _part(value, factors[name]) for name, value in terms.items()}
        return Losses(
            total=_weighted_sum(parts, plan.weights), terms=parts, weights={name: plan.weights[name] for name in parts}
        )

    def _factors(self, plan: StepPlan, share: Mapping[Rows, float]) -> dict[str, float]:
        """The factor of each term of a micro-batch with which all micro-batches of a step add up."""
        if all(part == 1 for part in share.values()):
            return dict.fromkeys(plan.weights, 1.0)
        predicted: Rows = "targets" if self.kind in BY_TOKEN else "examples"
        factors = {"hard": share[predicted], "soft": share[predicted]} if plan.predicts else {}
        for match, rows in zip(plan.stage.matches, plan.rows.denominators, strict=True):
            if rows in ("sum", "counted"):
                # A process left without examples runs one with weight 0.
                factors[match.name] = 1.0 if share["examples"] else 0.0
            else:
                factors[match.name] = share[rows]  # type: ignore[index]
        return factors

    def _stage_modules(self, clock: Clock, factors: Mapping[str, float], watch: Watch | None) -> StageModules:
        """The modules of a stage; flows that take `share` get their share of the step's rows."""
        projections, flows = self._of_stage(self.projections, clock), self._of_stage(self.flows, clock)
        if watch is not None:
            projections = {name: _Watched(name, one, watch) for name, one in projections.items()}
        return StageModules(
            projections=projections,
            flows={
                name: partial(flow, share=factors[name]) if _takes_share(flow) else flow for name, flow in flows.items()
            },
            judges=dict(self.judges.items()),
        )

    @torch.no_grad()
    def counts_of(self, plan: StepPlan, micro_batch: MicroBatch, teacher: Mapping[str, Trace]) -> dict[str, Tensor]:
        """Return the counts of a micro-batch by pair, for matches whose distance returns its own count."""
        student = self._student(plan, micro_batch)
        stage, pairs = plan.counting()
        with torch.autocast(micro_batch.batch.inputs["input_ids"].device.type, enabled=False):
            return stage_counts(
                stage,
                pairs,
                _widened(student, keep_logits=True),
                _widened(teacher, keep_logits=True),
                projections=self._of_stage(self.projections, plan.clock),
                mixed=micro_batch.mixed,
            )

    def _of_stage(self, modules: nn.ModuleDict, clock: Clock) -> dict[str, nn.Module]:
        key = str(clock.stage)
        return dict(modules[key].items()) if key in modules else {}  # type: ignore[operator]

    def _student(self, plan: StepPlan, micro_batch: MicroBatch) -> dict[str, Trace]:
        """Run the student on each view that the stage compares."""
        outputs, stage, inputs, mixed = {}, plan.stage, micro_batch.batch.inputs, micro_batch.mixed
        if mixed is not None:
            outputs["mixed"] = outputs_of(
                self.student, inputs, plan.student["mixed"], mixed, self.drop_start, logits=False
            )
        consistency = [match for match in stage.matches if match.against == "student"]
        trains_plain = plan.predicts or any(match.view == "plain" for match in stage.matches)
        if trains_plain or consistency:
            target_only = not trains_plain and all(match.detach for match in consistency)
            with torch.no_grad() if target_only else nullcontext():
                outputs["plain"] = outputs_of(
                    self.student, inputs, plan.student["plain"], None, self.drop_start, logits=plan.predicts
                )
        return outputs

    def after_step(self, *, new_epoch: bool) -> None:
        """Update stateful criteria and flows, once per optimiser step."""
        for memory in (judge for judge in self.judges.values() if isinstance(judge, Stateful)):
            memory.update(new_epoch)
        shared: dict[str | None, list[nn.Module]] = {}
        for index, stage in enumerate(self.stages):
            flows = self._of_stage(self.flows, Clock(stage=index))
            for match in stage.matches:
                flow = flows.get(match.name)
                if flow is not None and isinstance(flow, Stateful):
                    flow.update(new_epoch)
                    if getattr(flow, "shared", False):
                        shared.setdefault(match.stack, []).append(flow)
        for alike in shared.values():
            for weights in ("student", "teacher"):
                mean = torch.stack([getattr(flow, weights) for flow in alike]).mean(0)
                for flow in alike:
                    getattr(flow, weights).copy_(mean)


def _takes_share(flow: nn.Module) -> bool:
    """Return whether a flow takes its share of the step's rows, as one computed jointly by all processes does."""
    return "share" in signature(flow.forward).parameters


class _Watched(nn.Module):
    """A projection that reports its inputs and outputs; every pair is projected separately."""

    def __init__(self, name: str, projection: nn.Module, watch: Watch) -> None:
        super().__init__()
        self.name, self.projection, self.watch = name, projection, watch

    def forward(self, student: Tensor, teacher: Tensor, slot: int) -> tuple[Tensor, Tensor]:
        """Project the rows of pair number `slot`."""
        projected: tuple[Tensor, Tensor] = self.projection(student, teacher, slot)
        self.watch(self.name, slot, (student, teacher), projected)
        return projected


def _part(value: Tensor, factor: float) -> Tensor:
    """A micro-batch's contribution to a term; a step of one micro-batch needs no multiplication."""
    return value if factor == 1 else value * factor


def _weighted_sum(terms: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """The weighted sum of the terms, in order."""
    (first, value), *others = terms.items()
    total = value * weights[first]
    for name, term in others:
        total = torch.add(total, term, alpha=weights[name])
    return total


def _widened(views: Mapping[str, Trace], *, keep_logits: bool) -> dict[str, Trace]:
    """Upcast the outputs on each view to at least float32; with `keep_logits` except the logits."""
    return {view: _widened_trace(trace, keep_logits=keep_logits) for view, trace in views.items()}


def _widened_trace(trace: Trace, *, keep_logits: bool) -> Trace:
    encoder, decoder = (stack and _widened_stack(stack) for stack in (trace.encoder, trace.decoder))
    logits = trace.logits if keep_logits else wide(trace.logits)
    return replace(trace, logits=logits, encoder=encoder, decoder=decoder)


def _widened_stack(stack: Stack) -> Stack:
    values: dict[str, Any] = {each.name: getattr(stack, each.name) for each in fields(stack)}
    for name, layers in values.items():
        if isinstance(layers, Mapping):
            values[name] = _widened_layers(layers)
    return Stack(**values)


def _widened_layers(layers: Mapping[int, Tensor]) -> Mapping[int, Tensor]:
    """Upcast layers to at least float32; rows of one token, as read from the teacher cache, in one operation."""
    formats = {(values.dtype, values.shape) for values in layers.values()}
    if len(layers) > 1 and len(formats) == 1:
        ((dtype, shape),) = formats
        if dtype in (torch.float16, torch.bfloat16) and len(shape) == 3 and shape[1] == 1:
            return dict(zip(layers, wide(torch.stack(list(layers.values()))), strict=True))
    return {layer: wide(values) for layer, values in layers.items()}
