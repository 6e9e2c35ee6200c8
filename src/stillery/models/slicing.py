"""Slicing of a source's weights to the most important dimensions, heads and inner neurons for a narrower student."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.models.attention_heads import Kept, keep_heads, strongest
from stillery.models.axes import axes_of, head_size, place_of
from stillery.models.family import Sizes, sizes, stacks_of
from stillery.models.importance import Importance
from stillery.models.load_model import Loaded

__all__ = ["Cut", "is_narrower", "make_cut"]


def is_narrower(wanted: Sizes, has: Sizes) -> bool:
    """Return whether a stack is narrower than the source's in width, heads or inner width."""
    ours, theirs = (size.heads * (size.head_size or size.width // size.heads) for size in (wanted, has))
    return wanted.width < has.width or wanted.inner < has.inner or ours < theirs


@dataclass(frozen=True, kw_only=True, eq=False)
class Cut:
    """The dimensions, heads and inner neurons that a student keeps from its source.

    `width` are the kept hidden dimensions, the same for the whole model. `inner` and `heads`, by stack, are the kept
    inner neurons and heads of each source layer, `cross` those of the cross-attention. A missing entry means that all
    are kept, or that none can be chosen; `why_not` then has the reason for a stack's heads.
    """

    source: PreTrainedModel
    student: PreTrainedModel
    texts: int
    width: Tensor | None = None
    inner: Mapping[str, Sequence[Tensor]] = field(default_factory=dict)
    heads: Mapping[str, Sequence[Kept]] = field(default_factory=dict)
    cross: Mapping[str, Sequence[Kept]] = field(default_factory=dict)
    why_not: Mapping[str, str] = field(default_factory=dict)

    def of(self, name: str, tensor: Tensor, shape: torch.Size) -> Tensor | None:
        """Return the slice of a source's tensor in the shape of the student's, or None if there is none.

        `name` is the tensor's name in the source, relative to its base model.
        """
        axes = axes_of(self.source, name, tensor.dim())
        for axis, what in enumerate(axes):
            if tensor.shape[axis] == shape[axis]:
                continue
            chosen = self._chosen(what, name)
            if chosen is None or len(chosen) != shape[axis]:
                return None
            tensor = tensor.index_select(axis, chosen.to(tensor.device))
        return tensor

    def _chosen(self, what: str | None, name: str) -> Tensor | None:
        if what is None or what == "width":
            return self.width if what else None
        stack, layer = place_of(self.source.config, name)
        if what in ("inner", "inner and gate"):
            kept = self.inner[stack][layer] if stack in self.inner else None
            if kept is None or what == "inner":
                return kept
            return torch.cat([kept, kept + sizes(self.source.config, stack).inner])
        attention = self.cross if what.startswith("cross ") else self.heads
        return attention[stack][layer].of(what.removeprefix("cross ")) if stack in attention else None

    def in_words(self, stacks: Collection[str]) -> str:
        """Describe the parts kept from the model and from the layers of these stacks."""
        ours, theirs = sizes(self.student.config).width, sizes(self.source.config).width
        parts = [f"{ours} of {theirs} dimensions"] if ours != theirs else []
        words = {stack: self._stack_in_words(stack) for stack in stacks}
        if len(set(map(tuple, words.values()))) == 1:
            parts += next(iter(words.values()))
        else:
            parts += [f"in the {stack} {' and '.join(some)}" for stack, some in words.items() if some]
        return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)

    def _stack_in_words(self, stack: str) -> list[str]:
        ours, theirs = sizes(self.student.config, stack), sizes(self.source.config, stack)
        parts = []
        if stack in self.heads:
            size, full = head_size(self.student, stack), head_size(self.source, stack)
            inside = "" if size == full else f" ({size} of {full} dimensions in each)"
            parts.append(f"{ours.heads} of {theirs.heads} heads{inside}")
        if ours.inner != theirs.inner:
            parts.append(f"{ours.inner} of {theirs.inner} inner neurons")
        return parts


def make_cut(
    student: PreTrainedModel, source: Loaded, layers: Mapping[str, Sequence[int]], importance: Importance
) -> Cut:
    """Choose the dimensions, heads and inner neurons that a student of the source's family keeps.

    These are the most active ones, in their original order. Heads are chosen per layer, except where all layers share a
    position bias per head and therefore keep the same heads. `layers` are the source layers that the student copies,
    by stack.
    """
    theirs, width = source.model, sizes(student.config).width
    inner: dict[str, Sequence[Tensor]] = {}
    heads: dict[str, Sequence[Kept]] = {}
    cross: dict[str, Sequence[Kept]] = {}
    why_not: dict[str, str] = {}
    for stack in stacks_of(theirs.config):
        wanted = sizes(student.config, stack)
        if wanted.inner < sizes(theirs.config, stack).inner:
            inner[stack] = [strongest(row, wanted.inner) for row in importance.inner[stack]]
        copied = [layer - 1 for layer in layers.get(stack, ())]
        kept = keep_heads(student, source, stack, importance.heads[stack], copied) if copied else None
        if isinstance(kept, str):
            why_not[stack] = kept
        elif kept is not None:
            heads[stack] = kept
            if stack in importance.cross:
                also = keep_heads(student, source, stack, importance.cross[stack], copied, cross=True)
                assert also is not None and not isinstance(also, str)
                cross[stack] = also
    return Cut(
        source=theirs,
        student=student,
        texts=importance.texts,
        width=strongest(importance.width, width) if width < sizes(theirs.config).width else None,
        inner=inner,
        heads=heads,
        cross=cross,
        why_not=why_not,
    )
