"""Copy a source's weights into a student, module by module, and describe what was copied."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.lines import listed
from stillery.models.family import Family, family_of, inside, layout_of, sizes, stacks_of
from stillery.models.head_type import EMBEDDING, head_type
from stillery.models.importance import Importance
from stillery.models.load_model import Loaded
from stillery.models.projected_head import classifier_path, pooler_path
from stillery.models.slicing import Cut, make_cut

__all__ = ["copy_embeddings", "copy_stacks", "copy_weights"]


def _piece(name: str, family: Family, model: PreTrainedModel) -> str:
    """Describe the module of a classifier that a tensor is in; body tensors are named relative to the base model."""
    pooler, prefix = pooler_path(model), f"{model.base_model_prefix}."
    if head_type(model) is EMBEDDING:
        # Written with the body, though no embedding is computed from it.
        pooler = "pooler"
    if family.projection and inside(name, family.projection):
        return "embedding projection"
    words = {
        family.embeddings: "embeddings",
        family.layers: "layers",
        **({} if pooler is None else {pooler.removeprefix(prefix): "pooler"}),
        classifier_path(model): "classifier",
        **family.extras,
    }
    return next(word for path, word in words.items() if inside(name, path))


def _in_source(name: str, family: Family, layers: Sequence[int]) -> str:
    """Map a student's tensor name to the source's: the student's layer i is the source's `layers[i]`."""
    if family.shared or not inside(name, family.layers):
        return name
    index, _, rest = name.removeprefix(f"{family.layers}.").partition(".")
    return f"{family.layers}.{layers[int(index)] - 1}.{rest}"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Tensor:
    """A tensor of the student, the corresponding one of the source (None without one), and its name in the source."""

    own: Tensor
    theirs: Tensor | None
    name: str

    def given(self, cut: Cut | None) -> Tensor | None:
        """Return the source's values for the student's tensor, sliced if necessary; None if no slice has its shape."""
        if self.theirs is None or self.own.shape == self.theirs.shape:
            return self.theirs
        return None if cut is None else cut.of(self.name, self.theirs, self.own.shape)

    @property
    def whole(self) -> bool:
        """True if both have the same shape."""
        return self.theirs is not None and self.own.shape == self.theirs.shape


def _copy_piece(tensors: Sequence[_Tensor], cut: Cut | None) -> bool:
    """Copy all tensors of a module, or none if one does not fit; return whether they were copied."""
    found = [(tensor.own, tensor.given(cut)) for tensor in tensors]
    if any(given is None for _, given in found):
        return False
    for own, given in found:
        assert given is not None
        own.copy_(given)
    return True


def _picked(tensors: Sequence[_Tensor], cut: Cut | None, embedding_size: int) -> bool:
    """Initialise an embedding projection missing in the source to select the kept dimensions, if possible.

    An ELECTRA as wide as its embeddings has no projection, a narrower student has one.
    """
    if cut is None or cut.width is None or embedding_size != sizes(cut.source.config).width:
        return False
    for tensor in tensors:
        tensor.own.zero_()
        if tensor.own.dim() == 2:
            tensor.own[torch.arange(len(cut.width)), cut.width] = 1.0
    return True


@torch.no_grad()
def copy_weights(
    model: PreTrainedModel, source: Loaded, layers: Sequence[int], importance: Importance | None = None
) -> tuple[str, ...]:
    """Copy all modules of the source except the classifier into a student; return lines that list copied and new ones.

    `layers` are the source's, 1-based, in the student's order. Wider weights are sliced to the most important
    dimensions, heads and neurons; without `importance` only weights of the same shape are copied.
    """
    family, prefix = family_of(model.config, source.name), model.base_model_prefix
    cut = None if importance is None else make_cut(model, source, {"encoder": layers}, importance)
    held = {key.removeprefix(f"{prefix}."): value for key, value in source.model.state_dict().items()
            if key not in source.missing}  # fmt: skip
    pieces: dict[str, list[_Tensor]] = {}
    for key, tensor in model.state_dict().items():
        name = key.removeprefix(f"{prefix}.")
        theirs = _in_source(name, family, layers)
        if theirs not in held and family.unnormed_first is not None and f".{family.unnormed_first}." in theirs:
            # The source's first layer has no such norm; the student's starts as one that changes least.
            continue
        found = _Tensor(own=tensor, theirs=held.get(theirs), name=theirs)
        pieces.setdefault(_piece(name, family, model), []).append(found)
    pieces.pop("classifier", None)
    if "pooler" in pieces:
        pieces["pooler"] = pieces.pop("pooler")  # listed last: some families build their head before their encoder
    copied: dict[str, bool] = {}
    new = []
    for piece, tensors in pieces.items():
        if any(tensor.theirs is None for tensor in tensors):
            width = model.get_input_embeddings().get_parameter("weight").shape[1]
            if piece == "embedding projection" and _picked(tensors, cut, width):
                copied["embedding projection that picks what is kept"] = True
            else:
                new.append(f"{piece} (not in {source.name})")
        elif _copy_piece(tensors, cut):
            copied[piece] = all(tensor.whole for tensor in tensors)
        else:
            why_not = cut.why_not.get("encoder") if cut is not None and piece == "layers" else None
            new.append(f"{piece} ({why_not or 'of another shape'})")
    return tuple(_in_words(model, source, layers, copied, new, cut))


def _copied_line(source: Loaded, copied: Mapping[str, bool], stacks: Collection[str], cut: Cut | None) -> str:
    """Format a line with the copied modules, and their slices if any; `stacks` are those with copied layers."""
    if cut is None or all(copied.values()):
        return f"copied from {source.name}: {'; '.join(copied)}"
    named = [f"{piece} (whole)" if whole else piece for piece, whole in copied.items()]
    each = ", each" if len(copied) - sum(copied.values()) > 1 else ","
    kept = f"{each} cut to the {cut.in_words(stacks)} that are most active on {cut.texts} training texts"
    return f"copied from {source.name}: {'; '.join(named)}{kept}"


def _in_words(
    model: PreTrainedModel,
    source: Loaded,
    layers: Sequence[int],
    copied: Mapping[str, bool],
    new: Sequence[str],
    cut: Cut | None,
) -> list[str]:
    family, lines = family_of(model.config, source.name), []
    which = f"layers {listed(layers, 24)} as 1..{len(layers)}"
    if family.shared:
        which = f"the one layer that all {len(layers)} applications share"
    if copied:
        named = {which if piece == "layers" else piece: whole for piece, whole in copied.items()}
        lines.append(_copied_line(source, named, ["encoder"] if "layers" in copied else [], cut))
    # What follows the body of an embedder is its teacher's.
    new = [*new, *([] if head_type(model) is EMBEDDING else ["classifier"])]
    if new:
        lines.append(f"new (random): {', '.join(new)}")
    heads, theirs = sizes(model.config).heads, sizes(source.model.config).heads
    if "layers" in copied and heads != theirs and (cut is None or "encoder" not in cut.heads):
        lines.append(f"{heads} heads instead of {theirs}: the copied layers attend differently with the same weights")
    if cut is not None and _left_out(family, model, source):
        lines.append(f"the projection of {source.name}'s embeddings is left out: they are as wide as the student")
    if family.shared:
        lines.append("ALBERT's layers are one set of weights: fewer layers make it faster, not smaller")
    return lines


def _left_out(family: Family, model: PreTrainedModel, source: Loaded) -> bool:
    """Return whether the source has an embedding projection and the student does not."""
    has = [family.projection in dict(one.base_model.named_modules()) for one in (model, source.model)]
    return has == [False, True]


def _stack_piece(name: str, model: PreTrainedModel) -> str:
    """Describe the module of a text generator that a tensor is in; `name` is relative to the base model."""
    for stack in stacks_of(model.config):
        layout = layout_of(model.config, stack)
        if inside(name, layout.layers):
            return f"{stack} layers"
        if layout.norm is not None and inside(name, layout.norm):
            return "final norms"
        if any(inside(name, path) for path in layout.embeddings):
            return "embeddings"
    return "head"


def _in_stack(name: str, model: PreTrainedModel, layers: Mapping[str, Sequence[int]]) -> str:
    """Map a student's tensor name to the source's, both relative to the base model."""
    for stack, chosen in layers.items():
        layout = layout_of(model.config, stack)
        if inside(name, layout.layers):
            index, _, rest = name.removeprefix(f"{layout.layers}.").partition(".")
            # The position bias of all layers is in the first one, in the source too.
            first = layout.bias is not None and inside(rest, layout.bias)
            return f"{layout.layers}.{0 if first else chosen[int(index)] - 1}.{rest}"
    return name


def _newly_tied(model: PreTrainedModel, source: PreTrainedModel) -> set[str]:
    """The names of tensors that are tied in the model but not in the source."""
    held = dict(source.named_parameters(remove_duplicate=False))
    return {name for name, tied_to in model.all_tied_weights_keys.items() if held[name] is not held[tied_to]}


@torch.no_grad()
def copy_embeddings(model: PreTrainedModel, source: Loaded, importance: Importance | None = None) -> tuple[str, ...]:
    """Copy only token and position embeddings, and a head tied to them; return lines that list copied and new modules.

    Those of a narrower student are sliced to the most important dimensions.
    """
    prefix, held = model.base_model_prefix if model.base_model is not model else "", source.model.state_dict()
    cut = None if importance is None else make_cut(model, source, {}, importance)
    pieces: dict[str, list[_Tensor]] = {}
    # Tied tensors are listed once, under the name of the first.
    for key, tensor in model.named_parameters():
        name = key.removeprefix(f"{prefix}.")
        pieces.setdefault(_stack_piece(name, model), []).append(_Tensor(own=tensor, theirs=held[key], name=name))
    embeddings = pieces.pop("embeddings")
    if not _copy_piece(embeddings, cut):
        raise ValueError("the student's embeddings are of another width than the source's")
    what = "embeddings" if "head" in pieces else "embeddings, and the head that is tied to them"
    copied = _copied_line(source, {what: all(tensor.whole for tensor in embeddings)}, (), cut)
    return copied, f"new (random): {', '.join(pieces)}"


@torch.no_grad()
def copy_stacks(
    model: PreTrainedModel, source: Loaded, layers: Mapping[str, Sequence[int]], importance: Importance | None = None
) -> tuple[str, ...]:
    """Copy all modules of a text generator, including its head; return lines that list copied and new modules.

    `layers` are the source's in each stack, 1-based, in the student's order. A head that only the student ties to its
    embeddings is not copied. Wider weights are sliced to the most important dimensions, heads and neurons; without
    `importance` only weights of the same shape are copied.
    """
    prefix = model.base_model_prefix if model.base_model is not model else ""
    held = {key.removeprefix(f"{prefix}."): value for key, value in source.model.state_dict().items()}
    cut = None if importance is None else make_cut(model, source, layers, importance)
    tied = _newly_tied(model, source.model)
    pieces: dict[str, list[_Tensor]] = {}
    for key, tensor in model.state_dict().items():
        if key in tied:
            continue
        name = key.removeprefix(f"{prefix}.")
        theirs = _in_stack(name, model, layers)
        found = _Tensor(own=tensor, theirs=held[theirs], name=theirs)
        pieces.setdefault(_stack_piece(name, model), []).append(found)
    copied: dict[str, bool] = {}
    new, stacks = [], []
    for piece, tensors in pieces.items():
        stack = piece.removesuffix(" layers")
        if not _copy_piece(tensors, cut):
            why_not = cut.why_not.get(stack) if cut is not None else None
            new.append(f"{piece} ({why_not or 'of another shape'})")
            continue
        stacks += [stack] if stack in layers else []
        named = f"{stack} layers {listed(layers[stack], 24)}" if stack in layers else piece
        copied[named] = all(tensor.whole for tensor in tensors)
    lines = [_copied_line(source, copied, stacks, cut)] if copied else []
    lines += [f"new (random): {', '.join(new)}"] if new else []
    return *lines, *_attending_otherwise(model, source, [one for one in stacks if cut is None or one not in cut.heads])


def _attending_otherwise(model: PreTrainedModel, source: Loaded, stacks: Sequence[str]) -> list[str]:
    """Format a line for each stack whose layers were copied unsliced into a different number of heads."""
    counts = {stack: [sizes(one.config, stack).heads for one in (model, source.model)] for stack in stacks}
    return [
        f"{ours} heads in the {stack} instead of {before}: the copied layers attend differently with the same weights"
        for stack, (ours, before) in counts.items()
        if ours != before
    ]
