"""The loss terms of a stage: from what two models showed on a batch to named numbers.

Pure functions of traces, used by the training objective and by anyone who wants to recompute a term.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillery import declare
from stillery.errors import UserError
from stillery.parts._wide import wide
from stillery.parts.divergence import logit_mse, per_label
from stillery.parts.mix import mixed_mask, mixup
from stillery.parts.token_divergence import token_cross_entropy
from stillery.recipe import (
    Around,
    Batched,
    Clock,
    Layers,
    Match,
    Measured,
    Pairs,
    Prediction,
    Representation,
    Shown,
    StackName,
    Stage,
    View,
)

__all__ = [
    "BY_TOKEN",
    "UNSCORED",
    "Between",
    "Flow",
    "Kind",
    "Mixed",
    "Showing",
    "Views",
    "flat_layers",
    "judges_of",
    "mean_of",
    "modules_of",
    "pair_distance",
    "stage_counts",
    "stage_terms",
    "takes_keys",
]

UNSCORED = -100
"""The target of a position whose prediction is not scored."""


class Showing(Protocol):
    """What a model showed on one view of a batch."""

    @property
    def logits(self) -> Tensor:
        """[batch, classes], or [batch, tokens, classes] where tokens are predicted, a text's or tags."""

    @property
    def targets(self) -> Tensor | None:
        """The token or tag each position should predict, [batch, tokens], `UNSCORED` where none counts."""

    @property
    def encoder(self) -> Shown | None:
        """What the encoder showed, where there is one."""

    @property
    def decoder(self) -> Shown | None:
        """What the decoder showed, where there is one."""

    def stack(self, name: str | None = None) -> Shown:
        """What the layers of a stack showed, by its name; those of the model's first where none is given."""


Kind = Literal["classes", "labels", "score", "text", "tags"]
"""What the models predict: one class, any of several labels, a score, a text token by token, or a tag per word."""

BY_TOKEN: tuple[Kind, ...] = ("text", "tags")
"""Predictions of tokens, [batch, tokens, classes], of which those count whose target in the trace is not `UNSCORED`."""

Views = Mapping[str, Showing]
"""What a model showed of each view of a batch: plain, mixed."""


Flow = Callable[[Tensor], Tensor]
"""The distances of all pairs -> how much each weighs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixed:
    """How the examples of a batch are mixed: with which weight, and each with which other one."""

    lam: float
    partner: Tensor

    def inputs(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs with the masks of the mixed examples; a decoder's, where none is given, is where labels count."""
        masks = {name: inputs[name] for name in ("attention_mask", "decoder_attention_mask") if name in inputs}
        if "labels" in inputs:
            masks.setdefault("decoder_attention_mask", (inputs["labels"] != UNSCORED).long())
        return {**inputs, **{name: mixed_mask(mask, self.lam, self.partner) for name, mask in masks.items()}}

    def __call__(self, values: Tensor) -> Tensor:
        """Mix values that have one row per example."""
        return mixup(values, self.lam, self.partner)


def flat_layers(layers: Layers) -> tuple[int, ...]:
    """One or several layers as a tuple."""
    return layers if isinstance(layers, tuple) else (layers,)


def takes_keys(distance: Callable[..., object]) -> bool:
    """Whether a distance can leave keys of a row out."""
    return declare.takes(distance, "key_mask")


def mean_of(found: Tensor | Measured) -> Tensor:
    """What a distance comes to on a batch: the mean it gives, or its sum divided by its count."""
    if isinstance(found, Tensor):
        return found
    total, count = found
    return total / count.clamp_min(torch.finfo(total.dtype).tiny)


@dataclass(frozen=True, kw_only=True)
class Between:
    """The student's and the teacher's side of a stack: how many layers, and how wide."""

    depths: tuple[int, int]
    widths: tuple[int, int]


def modules_of(
    stage: Stage, between: Mapping[StackName | None, Between], clock: Clock
) -> tuple[dict[str, nn.Module], dict[str, nn.Module]]:
    """The projections and the flows of a stage's matches, by the match's name; new, from the current random state.

    `between` are the stacks of the models by their names, the first one also by None.
    """
    projections: dict[str, nn.Module] = {}
    flows: dict[str, nn.Module] = {}
    for match in stage.matches:
        if match.against == "student":
            continue
        depths, (student_width, teacher_width) = between[match.stack].depths, between[match.stack].widths
        pairs = match.pairs(*depths, clock)
        if match.project is not None and match.represent.sized and pairs:
            # Layers laid side by side are as wide as all of them together.
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
    """The judges of a stage's matches, by the name they share or the match's; new, from the current random state."""
    judges: dict[str, nn.Module] = {}
    for match in stage.matches:
        if match.judge is None or (match.shared or match.name) in judges:
            continue
        depths, widths = between[match.stack].depths, between[match.stack].widths
        pairs = match.pairs(*depths, clock)
        around = Around(
            student=[widths[0] * len(flat_layers(ours)) for ours, _ in pairs],
            teacher=[[widths[1]] * len(flat_layers(theirs)) for _, theirs in pairs],
            classes=classes,
            examples=examples,
        )
        judges[match.shared or match.name] = match.judge(around)
    return judges


def stage_terms(
    stage: Stage,
    student: Views,
    teacher: Views,
    labels: Tensor | None,
    clock: Clock,
    *,
    kind: Kind = "classes",
    projections: Mapping[str, nn.Module] | None = None,
    flows: Mapping[str, Flow] | None = None,
    judges: Mapping[str, nn.Module] | None = None,
    index: Tensor | None = None,
    mixed: Mixed | None = None,
    counts: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Every term of a stage under its own name, unweighted: `hard`, `soft`, and each match by its name.

    `counts` are those of a whole step, pair by pair, of matches whose distance counts what it is a mean over itself:
    the terms are then its part of the step's.
    """
    terms: dict[str, Tensor] = {}
    if stage.hard_weight:
        terms["hard"] = _hard(student["plain"], labels, kind)
    if stage.prediction is not None:
        terms["soft"] = _soft(stage.prediction, student["plain"], teacher["plain"].logits, kind)
    for match in stage.matches:
        pairs = _meeting(match, student, teacher, clock)
        if match.view == "mixed" and not ("mixed" in student and ("mixed" in teacher or match.against == "student")):
            raise UserError(
                f"match {match.name} looks at mixed examples: give traces by view, {{'plain': .., 'mixed': ..}}"
            )
        if match.against == "student":
            values = _divided(_consistency(match, pairs, student, mixed), (counts or {}).get(match.name))
            terms[match.name] = values.sum() if match.over_pairs == "sum" else values.mean()
        elif match.judge is not None:
            assert judges is not None and index is not None
            batch = Batched(labels=labels, index=index, match=match.name, regression=kind == "score", clock=clock)
            rows = _judged(match, pairs, student[match.view].stack(match.stack), teacher[match.view].stack(match.stack))
            terms[match.name] = judges[match.shared or match.name](rows, batch)
        else:
            ours, theirs = student[match.view].stack(match.stack), teacher[match.view].stack(match.stack)
            projection, flow = (projections or {}).get(match.name), (flows or {}).get(match.name)
            own = (counts or {}).get(match.name)
            terms[match.name] = _match_term(match, pairs, ours, theirs, projection, flow, own)
    return terms


def stage_counts(
    stage: Stage,
    student: Views,
    teacher: Views,
    clock: Clock,
    *,
    projections: Mapping[str, nn.Module],
    mixed: Mixed | None = None,
) -> dict[str, Tensor]:
    """How many each pair is a mean over, of every match whose distance gives a sum and a count."""
    counts: dict[str, Tensor] = {}
    for match in (match for match in stage.matches if match.judge is None):
        pairs = _meeting(match, student, teacher, clock)
        if match.against == "student":
            found = _consistency(match, pairs, student, mixed)
        else:
            ours, theirs = student[match.view].stack(match.stack), teacher[match.view].stack(match.stack)
            found = _distances(match, pairs, ours, theirs, projections.get(match.name))
        own = [one[1] for one in found if not isinstance(one, Tensor)]
        if own:
            counts[match.name] = torch.stack(own)
    return counts


def _meeting(match: Match, student: Views, teacher: Views, clock: Clock) -> Pairs:
    """The layers that meet between models that showed this."""
    left, right = (next(iter(views.values())).stack(match.stack) for views in (student, teacher))
    return match.pairs(left.depth, right.depth, clock)


def _judged(match: Match, pairs: Pairs, student: Shown, teacher: Shown) -> list[tuple[Tensor, list[Tensor]]]:
    """What a judge sees: of each pair the student's rows, side by side, and those of each teacher layer."""
    return [
        (
            _shown(match.represent, student, ours, _relation_heads(teacher)).values,
            [match.represent.show(teacher, layer).values for layer in flat_layers(theirs)],
        )
        for ours, theirs in pairs
    ]


def _hard(shown: Showing, labels: Tensor | None, kind: Kind) -> Tensor:
    """The labels' loss: cross entropy, that of yes and no for each of several labels, or squared error of a score.

    The labels of tokens are the targets of their trace; the mean is over those that are scored.
    """
    logits = shown.logits
    if kind in BY_TOKEN:
        return token_cross_entropy(logits, _targets(shown), ignore=UNSCORED)
    assert labels is not None
    if kind == "score":
        values = wide(logits).squeeze(-1)
        return F.mse_loss(values, labels.to(values.dtype))
    if kind == "labels":
        values = wide(logits)
        return F.binary_cross_entropy_with_logits(values, labels.to(values.dtype))
    return F.cross_entropy(wide(logits), labels)


def _targets(shown: Showing) -> Tensor:
    if shown.targets is None:
        raise UserError(
            "predictions of tokens are scored where their labels count: trace the model with labels in its inputs"
        )
    return shown.targets


def _soft(soft: Prediction, shown: Showing, teacher: Tensor, kind: Kind) -> Tensor:
    """How far the predictions are apart; a score has no distribution, several labels have one each, tokens too."""
    student = shown.logits
    if kind == "labels":
        return per_label(soft.divergence, student, teacher, soft.temperature, soft.square)
    if kind in BY_TOKEN:
        scored = _targets(shown) != UNSCORED
        said = declare.facts_of(soft.divergence)
        by_token = declare.known("token_divergence", said.word) if said is not None and said.word else None
        if by_token is None:
            # One without such a form compares rows of logits.
            return soft.divergence(student[scored], teacher[scored], soft.temperature, soft.square)
        measured: Tensor = by_token.part(student, teacher, scored, soft.temperature, soft.square)
        return measured
    divergence = logit_mse if kind == "score" else soft.divergence
    return divergence(student, teacher, soft.temperature, soft.square)


def _match_term(
    match: Match,
    pairs: Pairs,
    student: Shown,
    teacher: Shown,
    projection: nn.Module | None,
    flow: Flow | None,
    counts: Tensor | None,
) -> Tensor:
    """The distances of all pairs, added up, averaged, or weighed by a flow found on the detached distances."""
    if flow is None and counts is None and _at_once(match, pairs, projection):
        return _all_at_once(match, student, teacher, pairs, projection)
    distances = _divided(_distances(match, pairs, student, teacher, projection), counts)
    if flow is not None:
        return (flow(distances.detach()) * distances).sum()
    return distances.sum() if match.over_pairs == "sum" else distances.mean()


def _divided(found: Sequence[Tensor | Measured], counts: Tensor | None) -> Tensor:
    """What the pairs come to; sums are divided by the counts of the whole step, where those are known."""
    if counts is None:
        return torch.stack([mean_of(one) for one in found])
    totals = torch.stack([one if isinstance(one, Tensor) else one[0] for one in found])
    return totals / counts.to(totals.dtype).clamp_min(torch.finfo(totals.dtype).tiny)


def _at_once(match: Match, pairs: Pairs, projection: nn.Module | None) -> bool:
    """Whether all pairs can be measured in one go: a row per example, by a distance that says it allows it."""
    said, reduction = declare.facts_of(match.distance), declare.known("reduction", match.reduction)
    return (
        len(pairs) > 1
        and match.represent.show_all is not None
        and match.combine is None
        and said is not None
        and said.rowwise
        # What depends on the batch would take the rows of all pairs for one.
        and not (reduction is not None and reduction.together)
        and (projection is None or hasattr(projection, "together"))
        and all(isinstance(ours, int) and isinstance(theirs, int) for ours, theirs in pairs)
    )


def _all_at_once(match: Match, student: Shown, teacher: Shown, pairs: Pairs, projection: nn.Module | None) -> Tensor:
    """The distances of all pairs together: small tensors cost as much as large ones, so the rows of all are one.

    All pairs have as many rows, so the mean over the rows of all is the mean of the pairs' means.
    """
    assert match.represent.show_all is not None
    ours, theirs = zip(*pairs, strict=True)
    values, target = match.represent.show_all(student, ours), match.represent.show_all(teacher, theirs)
    if projection is not None:
        values, target = projection.together(values, target)  # type: ignore[operator]
    found = mean_of(_given(match, values, target, View(values)))
    if (match.reduction == "sum") == (match.over_pairs == "sum"):
        return found
    return found * len(pairs) if match.over_pairs == "sum" else found / len(pairs)


def _distances(
    match: Match, pairs: Pairs, student: Shown, teacher: Shown, projection: nn.Module | None
) -> list[Tensor | Measured]:
    return [pair_distance(match, student, teacher, pair, slot, projection) for slot, pair in enumerate(pairs)]


def pair_distance(
    match: Match,
    student: Shown,
    teacher: Shown,
    pair: tuple[Layers, Layers],
    slot: int = 0,
    projection: nn.Module | None = None,
) -> Tensor | Measured:
    """How far the layers of a pair are apart, as the match's distance gives it: a mean, or a sum and a count."""
    ours, theirs = pair
    view = _shown(match.represent, student, ours, _relation_heads(teacher))
    values = view.values
    if match.combine is not None:
        candidates = torch.stack([match.represent.show(teacher, layer).values for layer in flat_layers(theirs)])
        if projection is not None:
            values, candidates = projection(values, candidates, slot)
        target = match.combine(values, candidates.unbind())
    else:
        target = _shown(match.represent, teacher, theirs, _relation_heads(teacher)).values
        if projection is not None:
            values, target = projection(values, target, slot)
    return _given(match, values, target, view)


def _relation_heads(teacher: Shown) -> int:
    """Into how many heads relations are cut where that is the teacher's number: where heads share keys, theirs."""
    return teacher.key_heads or teacher.heads


def _shown(represent: Representation, stack: Shown, layers: Layers, teacher_heads: int) -> View:
    """The representation of one layer, of several at once, or of several side by side."""
    if represent.heads == "teacher":
        return represent.show(stack, layers, heads=teacher_heads)
    if represent.joint or isinstance(layers, int):
        return represent.show(stack, layers)
    views = [represent.show(stack, layer) for layer in layers]
    return View(torch.cat([view.values for view in views], dim=-1), views[0].mask, views[0].key_mask)


def _given(match: Match, values: Tensor, target: Tensor, view: View) -> Tensor | Measured:
    """The distance, given of mask, reduction and keys what it takes."""
    options: dict[str, object] = {"mask": view.mask, "reduction": match.reduction}
    if view.key_mask is not None:
        options["key_mask"] = view.key_mask
    taken = {name: given for name, given in options.items() if declare.takes(match.distance, name)}
    return match.distance(values, target, **taken)


def _consistency(match: Match, pairs: Pairs, student: Views, mixed: Mixed | None) -> list[Tensor | Measured]:
    """How far what the student shows on mixed examples is from the mix of what it shows on the plain ones.

    CR-ILD, R = d(f(Mix(h_i, h_j)), Mix(f(h_i), f(h_j))).
    """
    if mixed is None:
        raise UserError(f"match {match.name} compares with the mix of plain examples: say how they are mixed")
    found = []
    for layer, _ in pairs:
        view = match.represent.show(student["mixed"].stack(match.stack), layer)
        target = mixed(match.represent.show(student["plain"].stack(match.stack), layer).values)
        found.append(_given(match, view.values, target.detach() if match.detach else target, view))
    return found
