"""Distances of layer pairs: a match's representation, projection and distance, applied to each of its pairs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stillery import declare
from stillery.outputs import StackOutputs
from stillery.recipe import Layers, Match, Pairs, Representation, SumAndCount, View

__all__ = [
    "all_at_once",
    "at_once",
    "distance_of",
    "distances_of",
    "divided",
    "flat_layers",
    "mean_of",
    "pair_distance",
    "relation_heads",
    "represented",
]


def flat_layers(layers: Layers) -> tuple[int, ...]:
    """Return one or several layers as a tuple."""
    return layers if isinstance(layers, tuple) else (layers,)


def mean_of(found: Tensor | SumAndCount) -> Tensor:
    """Return the mean of a distance, dividing a sum by its count."""
    if isinstance(found, Tensor):
        return found
    total, count = found
    return total / count.clamp_min(torch.finfo(total.dtype).tiny)


def divided(found: Sequence[Tensor | SumAndCount], counts: Tensor | None) -> Tensor:
    """Return the mean distance of each pair; sums are divided by the counts of the whole step, if given."""
    if counts is None:
        return torch.stack([mean_of(one) for one in found])
    totals = torch.stack([one if isinstance(one, Tensor) else one[0] for one in found])
    return totals / counts.to(totals.dtype).clamp_min(torch.finfo(totals.dtype).tiny)


def at_once(match: Match, pairs: Pairs, projection: nn.Module | None) -> bool:
    """Return whether all pairs can be computed in one operation: one row per example, and a row-wise distance."""
    declared, reduction = declare.facts_of(match.distance), declare.known("reduction", match.reduction)
    return (
        len(pairs) > 1
        and match.represent.extract_all is not None
        and match.combine is None
        and declared is not None
        and declared.rowwise
        # A distance that compares examples with each other would mix the pairs.
        and not (reduction is not None and reduction.together)
        and (projection is None or hasattr(projection, "together"))
        and all(isinstance(ours, int) and isinstance(theirs, int) for ours, theirs in pairs)
    )


def all_at_once(
    match: Match, student: StackOutputs, teacher: StackOutputs, pairs: Pairs, projection: nn.Module | None
) -> Tensor:
    """Return the reduced distances of all pairs from one operation on all rows: faster than many small tensors.

    All pairs have equally many rows, so the mean over all rows is the mean of the pairs' means.
    """
    assert match.represent.extract_all is not None
    ours, theirs = zip(*pairs, strict=True)
    values, target = match.represent.extract_all(student, ours), match.represent.extract_all(teacher, theirs)
    if projection is not None:
        values, target = projection.together(values, target)  # type: ignore[operator]
    found = mean_of(distance_of(match, values, target, View(values)))
    if (match.reduction == "sum") == (match.over_pairs == "sum"):
        return found
    return found * len(pairs) if match.over_pairs == "sum" else found / len(pairs)


def distances_of(
    match: Match, pairs: Pairs, student: StackOutputs, teacher: StackOutputs, projection: nn.Module | None
) -> list[Tensor | SumAndCount]:
    """Return the distance of each pair of layers."""
    return [pair_distance(match, student, teacher, pair, slot, projection) for slot, pair in enumerate(pairs)]


def pair_distance(
    match: Match,
    student: StackOutputs,
    teacher: StackOutputs,
    pair: tuple[Layers, Layers],
    slot: int = 0,
    projection: nn.Module | None = None,
) -> Tensor | SumAndCount:
    """Return the distance of a pair of layers, in the form of the match's distance: a mean, or a sum and a count."""
    ours, theirs = pair
    view = represented(match.represent, student, ours, relation_heads(teacher))
    values = view.values
    if match.combine is not None:
        candidates = torch.stack([match.represent.extract(teacher, layer).values for layer in flat_layers(theirs)])
        if projection is not None:
            values, candidates = projection(values, candidates, slot)
        target = match.combine(values, candidates.unbind())
    else:
        target = represented(match.represent, teacher, theirs, relation_heads(teacher)).values
        if projection is not None:
            values, target = projection(values, target, slot)
    return distance_of(match, values, target, view)


def relation_heads(teacher: StackOutputs) -> int:
    """Return the teacher's number of relation heads: its key heads with grouped-query attention, else its heads."""
    return teacher.key_heads or teacher.heads


def represented(represent: Representation, stack: StackOutputs, layers: Layers, teacher_heads: int) -> View:
    """Return the representation of one layer, of several jointly, or of several concatenated."""
    if represent.heads == "teacher":
        return represent.extract(stack, layers, heads=teacher_heads)
    if represent.joint or isinstance(layers, int):
        return represent.extract(stack, layers)
    views = [represent.extract(stack, layer) for layer in layers]
    return View(torch.cat([view.values for view in views], dim=-1), views[0].mask, views[0].key_mask)


def distance_of(match: Match, values: Tensor, target: Tensor, view: View) -> Tensor | SumAndCount:
    """Call the match's distance with the keywords it takes among mask, reduction and key mask."""
    options: dict[str, object] = {"mask": view.mask, "reduction": match.reduction}
    if view.key_mask is not None:
        options["key_mask"] = view.key_mask
    taken = {name: value for name, value in options.items() if declare.takes(match.distance, name)}
    return match.distance(values, target, **taken)
