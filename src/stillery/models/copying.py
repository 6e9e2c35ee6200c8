"""Copy a source's weights into a student, piece by piece, and say in words what was copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.models.family import Family, family_of, inside, layout_of, sizes, stacks_of
from stillery.models.load import Loaded

__all__ = ["copy_embeddings", "copy_stacks", "copy_weights"]


def _piece(name: str, family: Family, prefix: str) -> str:
    """The piece of a model a tensor belongs to, in words; names start at the base model, the head's at the model."""
    if family.projection and inside(name, family.projection):
        return "embedding projection"
    words = {
        family.embeddings: "embeddings",
        family.layers: "layers",
        family.pooler.removeprefix(f"{prefix}."): "pooler",
        family.classifier: "classifier",
        **family.extras,
    }
    return next(word for path, word in words.items() if inside(name, path))


def _in_source(name: str, family: Family, layers: Sequence[int]) -> str:
    """The name in the source of what is called `name` in the student: its layer i is the source's `layers[i]`."""
    if family.shared or not inside(name, family.layers):
        return name
    index, _, rest = name.removeprefix(f"{family.layers}.").partition(".")
    return f"{family.layers}.{layers[int(index)] - 1}.{rest}"


@torch.no_grad()
def copy_weights(model: PreTrainedModel, source: Loaded, layers: Sequence[int]) -> tuple[str, ...]:
    """Copy every piece that the source holds in the same shapes, except the classifier.

    `layers` are the source's, 1-based, in the student's order. The result says which pieces were copied, which are new.
    """
    family, prefix = family_of(model.config, source.name), model.base_model_prefix
    held = {key.removeprefix(f"{prefix}."): value for key, value in source.model.state_dict().items()
            if key not in source.missing}  # fmt: skip
    pieces: dict[str, list[tuple[Tensor, Tensor | None]]] = {}
    for key, tensor in model.state_dict().items():
        name = key.removeprefix(f"{prefix}.")
        pieces.setdefault(_piece(name, family, prefix), []).append((tensor, held.get(_in_source(name, family, layers))))
    del pieces["classifier"]
    pieces["pooler"] = pieces.pop("pooler")  # named last: some families build their head before their encoder
    copied, new = [], []
    for piece, tensors in pieces.items():
        found = [(own, theirs) for own, theirs in tensors if theirs is not None]
        if len(found) < len(tensors):
            new.append(f"{piece} (not in {source.name})")
        elif any(own.shape != theirs.shape for own, theirs in found):
            new.append(f"{piece} (of another shape)")
        else:
            for own, theirs in found:
                own.copy_(theirs)
            copied.append(piece)
    return tuple(_in_words(model, source, layers, copied, new))


def _in_words(
    model: PreTrainedModel, source: Loaded, layers: Sequence[int], copied: Sequence[str], new: Sequence[str]
) -> list[str]:
    family, lines = family_of(model.config, source.name), []
    which = f"layers {', '.join(map(str, layers))} as 1..{len(layers)}"
    if family.shared:
        which = f"the one layer that all {len(layers)} applications share"
    if copied:
        said = [which if piece == "layers" else piece for piece in copied]
        lines.append(f"copied from {source.name}: {'; '.join(said)}")
    lines.append(f"new (random): {', '.join([*new, 'classifier'])}")
    heads, theirs = sizes(model.config).heads, sizes(source.model.config).heads
    if "layers" in copied and heads != theirs:
        lines.append(f"{heads} heads instead of {theirs}: the copied layers attend differently with the same weights")
    if family.shared:
        lines.append("ALBERT's layers are one set of weights: fewer layers make it faster, not smaller")
    return lines


def _stack_piece(name: str, model: PreTrainedModel) -> str:
    """The piece of a model that writes text a tensor belongs to, in words; `name` starts at the base model."""
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
    """The name in the source of what is called `name` in the student, both from the base model on."""
    for stack, chosen in layers.items():
        layout = layout_of(model.config, stack)
        if inside(name, layout.layers):
            index, _, rest = name.removeprefix(f"{layout.layers}.").partition(".")
            # The bias of all layers is kept by the first one, in the source too.
            first = layout.bias is not None and inside(rest, layout.bias)
            return f"{layout.layers}.{0 if first else chosen[int(index)] - 1}.{rest}"
    return name


def _newly_tied(model: PreTrainedModel, source: PreTrainedModel) -> set[str]:
    """The tensors of a model that are other ones of it, where the source has tensors of their own."""
    held = dict(source.named_parameters(remove_duplicate=False))
    return {name for name, tied_to in model.all_tied_weights_keys.items() if held[name] is not held[tied_to]}


@torch.no_grad()
def copy_embeddings(model: PreTrainedModel, source: Loaded) -> tuple[str, ...]:
    """Copy the embeddings alone, of tokens and positions, and with them a head that is tied; says what is new."""
    prefix, held = model.base_model_prefix if model.base_model is not model else "", source.model.state_dict()
    pieces: dict[str, None] = {}
    # A tensor that is tied to another comes with that one, and under its name.
    for key, tensor in model.named_parameters():
        piece = _stack_piece(key.removeprefix(f"{prefix}."), model)
        pieces[piece] = None
        if piece == "embeddings":
            tensor.copy_(held[key])
    copied = "embeddings" if "head" in pieces else "embeddings, and the head that is tied to them"
    new = ", ".join(piece for piece in pieces if piece != "embeddings")
    return f"copied from {source.name}: {copied}", f"new (random): {new}"


@torch.no_grad()
def copy_stacks(model: PreTrainedModel, source: Loaded, layers: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """Copy into a model that writes text every piece that the source holds in the same shapes, the head included.

    `layers` are the source's of each stack, 1-based, in the student's order. A head that only the student ties to its
    embeddings is what those are. The result says in words which pieces were copied and which are new.
    """
    prefix = model.base_model_prefix if model.base_model is not model else ""
    held = {key.removeprefix(f"{prefix}."): value for key, value in source.model.state_dict().items()}
    tied = _newly_tied(model, source.model)
    pieces: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for key, tensor in model.state_dict().items():
        if key in tied:
            continue
        name = key.removeprefix(f"{prefix}.")
        pieces.setdefault(_stack_piece(name, model), []).append((tensor, held[_in_stack(name, model, layers)]))
    copied, new = [], []
    for piece, tensors in pieces.items():
        if any(own.shape != theirs.shape for own, theirs in tensors):
            new.append(f"{piece} (of another shape)")
            continue
        for own, theirs in tensors:
            own.copy_(theirs)
        stack = piece.removesuffix(" layers")
        copied.append(f"{stack} layers {', '.join(map(str, layers[stack]))}" if stack in layers else piece)
    lines = [f"copied from {source.name}: {'; '.join(copied)}"] if copied else []
    lines += [f"new (random): {', '.join(new)}"] if new else []
    for stack in layers:
        heads, before = sizes(model.config, stack).heads, sizes(source.model.config, stack).heads
        if f"{stack} layers" not in "".join(new) and heads != before:
            lines.append(
                f"{heads} heads in the {stack} instead of {before}: the copied layers attend differently with the same "
                "weights"
            )
    return tuple(lines)
