"""Cut a source's tensors to the dimensions, heads and inner neurons that matter most, for a narrower student."""

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
from stillery.models.load import Loaded

__all__ = ["Cut", "is_narrower", "make_cut"]


def is_narrower(wanted: Sizes, has: Sizes) -> bool:
    """Whether a stack of the wanted sizes is narrower than the source's in anything: width, heads or inner width."""
    ours, theirs = (size.heads * (size.head_size or size.width // size.heads) for size in (wanted, has))
    return wanted.width < has.width or wanted.inner < has.inner or ours < theirs


@dataclass(frozen=True, kw_only=True, eq=False)
class Cut:
    """Which dimensions, heads and inner neurons of a source a student keeps.

    `width` are the dimensions of the hidden states, one set for the whole model; `inner` and `heads`, by stack, the
    inner neurons and heads of each of the source's layers, `cross` those of its attention to the encoder. None means
    that nothing can or need be chosen. `why_not` says why a stack's heads cannot be.
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
        """What a student's tensor of this shape keeps of the source's; `name` is the source's, from its base model on.

        None where the one cannot be cut to the other.
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
        if what == "inner":
            return self.inner[stack][layer] if stack in self.inner else None
        attention = self.cross if what.startswith("cross ") else self.heads
        return attention[stack][layer].of(what.removeprefix("cross ")) if stack in attention else None

    def in_words(self, stacks: Collection[str]) -> str:
        """What is kept of the model and of the layers of these stacks; the words of all stacks where they agree."""
        ours, theirs = sizes(self.student.config).width, sizes(self.source.config).width
        parts = [f"{ours} of {theirs} dimensions"] if ours != theirs else []
        said = {stack: self._stack_in_words(stack) for stack in stacks}
        if len(set(map(tuple, said.values()))) == 1:
            parts += next(iter(said.values()))
        else:
            parts += [f"in the {stack} {' and '.join(some)}" for stack, some in said.items() if some]
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
    """Choose what a student of the source's family keeps; `layers` are those of the source it copies, by stack.

    Chosen are the most active dimensions, heads and inner neurons, and they stay in their order. Heads are chosen layer
    by layer, except where all layers share a bias for each head: those keep the same heads.
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
