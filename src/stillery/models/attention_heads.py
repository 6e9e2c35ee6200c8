"""Selection of the attention heads that a student with fewer or smaller heads keeps from its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.models.axes import head_size
from stillery.models.family import Sizes, layout_of, sizes
from stillery.models.importance import Activity
from stillery.models.load_model import Loaded

__all__ = ["Kept", "keep_heads", "strongest"]


def strongest(scores: Tensor, count: int) -> Tensor:
    """The indices of the `count` highest scores, in ascending order; the earlier where scores are equal.

    >>> strongest(torch.tensor([3.0, 1.0, 5.0, 3.0]), 2).tolist()
    [0, 2]
    """
    return scores.sort(descending=True, stable=True).indices[:count].sort().values


@dataclass(frozen=True, kw_only=True, eq=False)
class Kept:
    """The heads kept in one layer's attention, and the key-value groups kept with grouped-query attention.

    `matched` are the dimensions kept inside each head of queries and keys, [heads, size], `carried` those of values;
    None means all. `size` is the source's head size, `total` the width of all its heads.
    """

    heads: Tensor
    groups: Tensor
    size: int
    total: int
    matched: Tensor | None = None
    carried: Tensor | None = None

    def of(self, what: str) -> Tensor | None:
        """The indices to keep along an axis of a tensor: whole `heads`, or dimensions of all heads side by side.

        None for an axis of one head (`size`), since each head may keep other dimensions.
        """
        if what == "heads":
            return self.heads
        if what == "fused":
            return torch.cat([self._places(self.heads, inside) + self.total * third
                              for third, inside in enumerate((self.matched, self.matched, self.carried))])  # fmt: skip
        named = {
            "query": (self.heads, self.matched),
            "key": (self.groups, self.matched),
            "value": (self.groups, self.carried),
            "attended": (self.heads, self.carried),
        }
        return self._places(*named[what]) if what in named else None

    def _places(self, heads: Tensor, inside: Tensor | None) -> Tensor:
        places = torch.arange(self.size).expand(len(heads), -1) if inside is None else inside
        return (heads[:, None] * self.size + places).flatten()


def keep_heads(
    student: PreTrainedModel,
    source: Loaded,
    stack: str,
    activity: Activity,
    copied: Sequence[int],
    *,
    cross: bool = False,
) -> list[Kept] | str | None:
    """Return the heads to keep in each source layer; None if all are kept, or the reason why none can be chosen.

    `copied` are the layers that the student copies, counted from 0.
    """
    theirs, layout = source.model, layout_of(source.model.config, stack)
    wanted, has = sizes(student.config, stack), sizes(theirs.config, stack)
    size, full = head_size(student, stack), head_size(theirs, stack)
    if wanted.heads * size == has.heads * full:
        return None
    why_not = _why_not(wanted, has, size, full, layout.rotary)
    if why_not is not None:
        return f"{why_not} in {source.name}"
    # Layers that share a position bias per head have to keep the same heads.
    together = layout.bias is not None or layout.head_bias is not None
    scores = activity.heads[list(copied)].mean(0).expand_as(activity.heads) if together else activity.heads
    kept = []
    for layer, row in enumerate(scores):
        heads, groups = _grouped(row, wanted, has)
        matched = carried = None
        if size < full:
            pairs = _query_key_strength(theirs, stack, layer, cross)
            matched = torch.stack([strongest(pairs[head], size) for head in heads])
            carried = torch.stack([strongest(activity.values[layer, head], size) for head in heads])
        kept.append(
            Kept(heads=heads, groups=groups, size=full, total=has.heads * full, matched=matched, carried=carried)
        )
    return kept


def _why_not(wanted: Sizes, has: Sizes, size: int, full: int, rotary: bool) -> str | None:
    """Return the reason why no heads can be chosen (the student's heads against the source's), or None."""
    if wanted.heads > has.heads:
        return f"{wanted.heads} heads against {has.heads}"
    if size > full:
        return f"heads of {size} against heads of {full}"
    if size < full and rotary:
        return f"heads of {size} with rotary positions against heads of {full}"
    ours, theirs = wanted.key_heads or wanted.heads, has.key_heads or has.heads
    if ours > theirs or wanted.heads // ours > has.heads // theirs:
        return f"{wanted.heads} heads that share {ours} heads of keys against {has.heads} that share {theirs}"
    return None


def _grouped(scores: Tensor, wanted: Sizes, has: Sizes) -> tuple[Tensor, Tensor]:
    """Choose the heads to keep, and the key-value groups with the largest sum over their kept heads."""
    groups, kept_groups = has.key_heads or has.heads, wanted.key_heads or wanted.heads
    size, kept_size = has.heads // groups, wanted.heads // kept_groups
    by_group = scores.reshape(groups, size)
    best = [strongest(row, kept_size) for row in by_group]
    together = torch.stack([row[places].sum() for row, places in zip(by_group, best, strict=True)])
    chosen = strongest(together, kept_groups)
    return torch.cat([best[int(group)] + int(group) * size for group in chosen]), chosen


def _query_key_strength(model: PreTrainedModel, stack: str, layer: int, cross: bool) -> Tensor:
    """The effect of each dimension inside a head on its scores, [heads, size]: the product of two weight norms."""
    layout, heads = layout_of(model.config, stack), sizes(model.config, stack).heads
    maps = layout.cross if cross and layout.cross is not None else layout.projections
    module = list(model.base_model.get_submodule(layout.layers).children())[layer]
    weights = [module.get_submodule(path).get_parameter("weight").detach() for path in maps[:2]]
    if layout.transposed:
        weights = [weight.T for weight in weights]
    if layout.fused:
        weights = list(weights[0].chunk(3)[:2])
    query, key = (weight.double().norm(dim=1).reshape(heads, -1).cpu() for weight in weights)
    strength: Tensor = query * key
    return strength
