"""The loss terms of a stage, by name, computed from the outputs of student and teacher on a batch.

Pure functions of traces, used by the training objective and to recompute a term.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillery import declare
from stillery.errors import UserError
from stillery.ignored import IGNORED
from stillery.outputs import StackOutputs
from stillery.pair_distances import (
    all_at_once,
    at_once,
    distance_of,
    distances_of,
    divided,
    flat_layers,
    relation_heads,
    represented,
)
from stillery.parts._wide import wide
from stillery.parts.divergence import logit_mse, per_label
from stillery.parts.mix import mixed_mask, mixup
from stillery.parts.token_divergence import token_cross_entropy
from stillery.recipe import (
    Clock,
    CriterionBatch,
    CriterionSizes,
    Match,
    Pairs,
    Prediction,
    StackName,
    Stage,
    SumAndCount,
)

__all__ = [
    "BY_TOKEN",
    "IGNORED",
    "BatchFacts",
    "Between",
    "Flow",
    "Kind",
    "Mixed",
    "ModelOutputs",
    "StageModules",
    "StagePairs",
    "Views",
    "judges_of",
    "modules_of",
    "stage_counts",
    "stage_pairs",
    "stage_terms",
]


class ModelOutputs(Protocol):
    """The outputs of a model on one view of a batch."""

    @property
    def logits(self) -> Tensor:
        """[batch, classes], or [batch, tokens, classes] where each token is predicted: vocabulary or tags.

        Of an embedding model the embeddings, [batch, size].
        """

    @property
    def targets(self) -> Tensor | None:
        """The target token or tag of each position, [batch, tokens], `IGNORED` where none is scored."""

    @property
    def encoder(self) -> StackOutputs | None:
        """The outputs of the encoder's layers, if there is one."""

    @property
    def decoder(self) -> StackOutputs | None:
        """The outputs of the decoder's layers, if there is one."""

    def stack(self, name: str | None = None) -> StackOutputs:
        """Return the outputs of a stack's layers, by the stack's name; by default of the model's first stack."""


Kind = Literal["classes", "labels", "score", "text", "tags", "embedding"]
"""The type of prediction: a class, any of several labels, a score, text by token, a tag per word, or a vector."""

BY_TOKEN: tuple[Kind, ...] = ("text", "tags")
"""Per-token predictions, [batch, tokens, classes]; tokens whose target in the trace is `IGNORED` are left out."""

Views = Mapping[str, ModelOutputs]
"""A model's outputs on each view of a batch: plain, mixed."""

StagePairs = Sequence[Pairs]
"""The (student, teacher) layer pairs of each match of a stage, in the order of its matches."""

Flow = Callable[[Tensor], Tensor]
"""The distances of all pairs -> the weight of each."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixed:
    """The MixUp of the examples of a batch: the weight lambda, and each example's partner."""

    lam: float
    partner: Tensor

    def inputs(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the inputs with the masks of the mixed examples; a missing decoder mask is made from the labels."""
        masks = {name: inputs[name] for name in ("attention_mask", "decoder_attention_mask") if name in inputs}
        if "labels" in inputs:
            masks.setdefault("decoder_attention_mask", (inputs["labels"] != IGNORED).long())
        return {**inputs, **{name: mixed_mask(mask, self.lam, self.partner) for name, mask in masks.items()}}

    def __call__(self, values: Tensor) -> Tensor:
        """Mix values that have one row per example."""
        return mixup(values, self.lam, self.partner)


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchFacts:
    """The inputs of loss terms besides the outputs: labels, indices in the training split, MixUp, prediction type.

    `class_weights` has a weight for each class; None for equal weights.
    """

    labels: Tensor | None = None
    index: Tensor | None = None
    mixed: Mixed | None = None
    kind: Kind = "classes"
    class_weights: Tensor | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class StageModules:
    """The modules of a stage's matches by name: projections, optimal transport flows, and criteria (`judges`)."""

    projections: Mapping[str, nn.Module] = field(default_factory=dict)
    flows: Mapping[str, Flow] = field(default_factory=dict)
    judges: Mapping[str, nn.Module] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Between:
    """The (student, teacher) numbers of layers and widths of a stack."""

    depths: tuple[int, int]
    widths: tuple[int, int]


def modules_of(
    stage: Stage, between: Mapping[StackName | None, Between], clock: Clock
) -> tuple[dict[str, nn.Module], dict[str, nn.Module]]:
    """Build new projections and flows of a stage's matches, by match name, from the current random state.

    `between` has the sizes of the models' stacks by stack name, the first one also under None.
    """
    projections: dict[str, nn.Module] = {}
    flows: dict[str, nn.Module] = {}
    for match in stage.matches:
        if match.against == "student":
            continue
        depths, (student_width, teacher_width) = between[match.stack].depths, between[match.stack].widths
        pairs = match.pairs(*depths, clock)
        if match.project is not None and match.represent.sized and pairs:
            # Concatenated layers are as wide as the sum of their widths.
            ours = [student_width * len(flat_layers(student)) for student, _ in pairs]
            theirs = [teacher_width * (1 if match.combine else len(flat_layers(teacher))) for _, teacher in pairs]
            projection = match.project(ours, theirs)
            if projection is not None:
                projections[match.name] = projection
        if match.flow is not None:
            flows[match.name] = match.flow(*depths)
    return projections, flows


def judges_of(
    stage: Stage, between: Mapping[StackName | None, Between], clock: Clock, *, classes: int, examples: int
) -> dict[str, nn.Module]:
    """Build new criteria of a stage's matches, by shared or match name, from the current random state."""
    judges: dict[str, nn.Module] = {}
    for match in stage.matches:
        if match.criterion is None or (match.shared or match.name) in judges:
            continue
        depths, widths = between[match.stack].depths, between[match.stack].widths
        pairs = match.pairs(*depths, clock)
        around = CriterionSizes(
            student=[widths[0] * len(flat_layers(ours)) for ours, _ in pairs],
            teacher=[[widths[1]] * len(flat_layers(theirs)) for _, theirs in pairs],
            classes=classes,
            examples=examples,
        )
        judges[match.shared or match.name] = match.criterion(around)
    return judges


def stage_pairs(stage: Stage, student: Views, teacher: Views, clock: Clock) -> StagePairs:
    """Return the layer pairs of each match of a stage, for models with these outputs."""
    left, right = (next(iter(views.values())) for views in (student, teacher))
    return [
        match.pairs(left.stack(match.stack).depth, right.stack(match.stack).depth, clock) for match in stage.matches
    ]


def stage_terms(
    stage: Stage,
    pairs: StagePairs,
    student: Views,
    teacher: Views,
    batch: BatchFacts,
    clock: Clock,
    modules: StageModules | None = None,
    counts: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Return the unweighted loss terms of a stage by name: `hard`, `soft`, and each match by its name.

    `counts` are the totals of a whole optimiser step, per pair, for matches whose distance returns a sum and a count:
    the terms are then this micro-batch's share of the step's terms.
    """
    modules, counts = modules or StageModules(), counts or {}
    terms: dict[str, Tensor] = {}
    if stage.hard_weight:
        terms["hard"] = _hard(student["plain"], batch.labels, batch.kind, batch.class_weights)
    if stage.prediction is not None:
        terms["soft"] = _soft(stage.prediction, student["plain"], teacher["plain"].logits, batch.kind)
    for match, meeting in zip(stage.matches, pairs, strict=True):
        _check_views(match, student, teacher)
        count = counts.get(match.name)
        if match.against == "student":
            distances = divided(_consistency(match, meeting, student, batch.mixed), count)
            terms[match.name] = distances.sum() if match.over_pairs == "sum" else distances.mean()
        elif match.criterion is not None:
            terms[match.name] = _criterion_term(match, meeting, student, teacher, batch, clock, modules.judges)
        else:
            ours, theirs = student[match.view].stack(match.stack), teacher[match.view].stack(match.stack)
            projection, flow = modules.projections.get(match.name), modules.flows.get(match.name)
            terms[match.name] = _match_term(match, meeting, ours, theirs, projection, flow, count)
    return terms


def stage_counts(
    stage: Stage,
    pairs: StagePairs,
    student: Views,
    teacher: Views,
    *,
    projections: Mapping[str, nn.Module],
    mixed: Mixed | None = None,
) -> dict[str, Tensor]:
    """Return the count of each pair, for every match whose distance returns a sum and a count."""
    counts: dict[str, Tensor] = {}
    for match, meeting in zip(stage.matches, pairs, strict=True):
        if match.criterion is not None:
            continue
        if match.against == "student":
            found = _consistency(match, meeting, student, mixed)
        else:
            ours, theirs = student[match.view].stack(match.stack), teacher[match.view].stack(match.stack)
            found = distances_of(match, meeting, ours, theirs, projections.get(match.name))
        own = [one[1] for one in found if not isinstance(one, Tensor)]
        if own:
            counts[match.name] = torch.stack(own)
    return counts


def _check_views(match: Match, student: Views, teacher: Views) -> None:
    """Raise UserError if a match compares mixed examples and there are no outputs on them."""
    if match.view == "mixed" and not ("mixed" in student and ("mixed" in teacher or match.against == "student")):
        raise UserError(
            f"match {match.name} compares mixed examples: give traces by view, {{'plain': .., 'mixed': ..}}"
        )


def _criterion_term(
    match: Match,
    pairs: Pairs,
    student: Views,
    teacher: Views,
    batch: BatchFacts,
    clock: Clock,
    judges: Mapping[str, nn.Module],
) -> Tensor:
    """Return the value of a criterion, which compares all pairs itself.

    It receives for each pair the student's rows, concatenated over layers, and the rows of each teacher layer.
    """
    assert batch.index is not None
    ours, theirs = student[match.view].stack(match.stack), teacher[match.view].stack(match.stack)
    rows = [
        (
            represented(match.represent, ours, left, relation_heads(theirs)).values,
            [match.represent.extract(theirs, layer).values for layer in flat_layers(right)],
        )
        for left, right in pairs
    ]
    facts = CriterionBatch(
        labels=batch.labels, index=batch.index, match=match.name, regression=batch.kind == "score", clock=clock
    )
    value: Tensor = judges[match.shared or match.name](rows, facts)
    return value


def _hard(outputs: ModelOutputs, labels: Tensor | None, kind: Kind, class_weights: Tensor | None = None) -> Tensor:
    """Return the label loss: cross entropy, binary cross entropy for several labels, or squared error of a score.

    The labels of tokens are the targets of their trace; the mean is over scored tokens. With class weights w the loss
    is 1/n sum_i w[y_i] CE_i: divided by the n examples, not by their weights, so that micro-batches add up.
    """
    logits = outputs.logits
    if kind in BY_TOKEN:
        return token_cross_entropy(logits, _targets(outputs), ignore=IGNORED)
    assert labels is not None
    if kind == "score":
        values = wide(logits).squeeze(-1)
        return F.mse_loss(values, labels.to(values.dtype))
    if kind == "labels":
        values = wide(logits)
        return F.binary_cross_entropy_with_logits(values, labels.to(values.dtype))
    if class_weights is not None:
        return (class_weights[labels] * F.cross_entropy(wide(logits), labels, reduction="none")).mean()
    return F.cross_entropy(wide(logits), labels)


def _targets(outputs: ModelOutputs) -> Tensor:
    if outputs.targets is None:
        raise UserError(
            "predictions of tokens are scored where their labels count: trace the model with labels in its inputs"
        )
    return outputs.targets


def _soft(soft: Prediction, outputs: ModelOutputs, teacher: Tensor, kind: Kind) -> Tensor:
    """Return the divergence of the predictions: per label or per token where there are several, MSE for a score."""
    student = outputs.logits
    if kind == "labels":
        return per_label(soft.divergence, student, teacher, soft.temperature, soft.square)
    if kind in BY_TOKEN:
        scored = _targets(outputs) != IGNORED
        declared = declare.facts_of(soft.divergence)
        by_token = declare.known("token_divergence", declared.word) if declared is not None and declared.word else None
        if by_token is None:
            # A divergence without a token-level form compares rows of logits.
            return soft.divergence(student[scored], teacher[scored], soft.temperature, soft.square)
        measured: Tensor = by_token.part(student, teacher, scored, soft.temperature, soft.square)
        return measured
    divergence = logit_mse if kind == "score" else soft.divergence
    return divergence(student, teacher, soft.temperature, soft.square)


def _match_term(
    match: Match,
    pairs: Pairs,
    student: StackOutputs,
    teacher: StackOutputs,
    projection: nn.Module | None,
    flow: Flow | None,
    counts: Tensor | None,
) -> Tensor:
    """Return the distances of all pairs, summed, averaged, or weighted by a flow computed on the detached distances."""
    if flow is None and counts is None and at_once(match, pairs, projection):
        return all_at_once(match, student, teacher, pairs, projection)
    distances = divided(distances_of(match, pairs, student, teacher, projection), counts)
    if flow is not None:
        return (flow(distances.detach()) * distances).sum()
    return distances.sum() if match.over_pairs == "sum" else distances.mean()


def _consistency(match: Match, pairs: Pairs, student: Views, mixed: Mixed | None) -> list[Tensor | SumAndCount]:
    """Return the distance of the student's outputs on mixed examples from the mix of its outputs on plain ones.

    CR-ILD, R = d(f(Mix(h_i, h_j)), Mix(f(h_i), f(h_j))).
    """
    if mixed is None:
        raise UserError(f"match {match.name} compares with the mix of plain examples: say how they are mixed")
    found = []
    for layer, _ in pairs:
        view = match.represent.extract(student["mixed"].stack(match.stack), layer)
        target = mixed(match.represent.extract(student["plain"].stack(match.stack), layer).values)
        found.append(distance_of(match, view.values, target.detach() if match.detach else target, view))
    return found
