"""Copy a source's weights into a student, piece by piece, and say in words what was copied."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.models.family import Family, family_of, inside, sizes
from stillery.models.load import Loaded

__all__ = ["copy_weights"]


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
