"""Classification heads behind a projector, and their folding into one plain linear layer."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from stillery.models.family import family_of, kind_of, sizes
from stillery.models.head_type import EMBEDDING, head_type

__all__ = [
    "Head",
    "Projected",
    "classifier_path",
    "exported_parameters",
    "final_linear",
    "folded",
    "head_of",
    "insert",
    "is_custom",
    "pooler_path",
]


@dataclass(frozen=True, kw_only=True)
class Head:
    """The reused part of a teacher's head, the projector before it, and the input width of its linear classifier."""

    reuse: str
    projector: str | None
    width: int

    def folds(self, student_width: int) -> bool:
        """Return whether a plain model of this width can represent the head, so that the projector can be folded."""
        return self.projector != "mlp" and (self.reuse == "linear" or self.width == student_width)


class Projected(nn.Module):
    """A linear layer of the teacher's head behind a trainable projector."""

    def __init__(self, projector: nn.Module, linear: nn.Linear) -> None:
        super().__init__()
        self.projector = projector
        self.linear = linear

    def forward(self, feature: Tensor) -> Tensor:
        """Project, then apply the linear layer."""
        output: Tensor = self.linear(self.projector(feature))
        return output

    @torch.no_grad()
    def folded(self) -> nn.Linear:
        """Return the equivalent linear layer: weight W P and bias W b_P + b, computed in double precision."""
        projector = self.projector
        assert isinstance(projector, nn.Linear)
        # On the CPU, because not every device has double precision.
        weight, bias = self.linear.weight.cpu().double(), self.linear.bias.cpu().double()
        plain: nn.Linear = nn.utils.skip_init(nn.Linear, projector.in_features, self.linear.out_features)
        plain.weight.copy_(weight @ projector.weight.cpu().double())
        plain.bias.copy_(weight @ projector.bias.cpu().double() + bias)
        plain.to(self.linear.weight.device)
        return plain


def _projector(kind: str, ours: int, theirs: int) -> nn.Module:
    """Create a projector: a linear map with bias or SimKD's three layers with a bottleneck of half the teacher's width.

    SimKD has convolutions, each with batch normalisation and a ReLU. Here there is no batch normalisation, and no ReLU
    after the last layer, because a pooled feature has both signs.
    """
    if kind == "linear":
        return nn.Linear(ours, theirs)
    middle = max(1, theirs // 2)
    return nn.Sequential(
        nn.Linear(ours, middle), nn.ReLU(), nn.Linear(middle, middle), nn.ReLU(), nn.Linear(middle, theirs)
    )


def _replace(model: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


def classifier_path(model: PreTrainedModel) -> str:
    """Return the path of the linear layer that computes a model's logits."""
    return head_type(model).classifier(family_of(model.config, "model"))


def pooler_path(model: PreTrainedModel) -> str | None:
    """Return the path of the dense layer before the classifier; None for token classification."""
    return head_type(model).pooler(family_of(model.config, "model"))


def insert(model: PreTrainedModel, head: Head, seed: int = 0) -> None:
    """Replace the head of a plain classifier by new modules, initialised from the seed."""
    pooler = pooler_path(model)
    labels, ours = final_linear(model).out_features, sizes(model.config).width
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        projector = _projector(head.projector, ours, head.width) if head.projector else None
        linear: nn.Module = nn.Linear(head.width, labels)
        if projector is not None and head.reuse == "pooler+linear":
            assert pooler is not None
            _replace(model, pooler, Projected(projector, nn.Linear(head.width, head.width)))
            norm = family_of(model.config, "model").pooler_norm
            if norm is not None:
                own: Any = model.get_submodule(norm)
                _replace(model, norm, nn.LayerNorm(head.width, eps=own.eps, bias=own.bias is not None))
        elif projector is not None:
            linear = Projected(projector, nn.Linear(head.width, labels))
    _replace(model, classifier_path(model), linear)


def final_linear(model: PreTrainedModel) -> nn.Linear:
    """Return the linear layer that computes the logits; its input is the model's feature."""
    module = model.get_submodule(classifier_path(model))
    linear = module.linear if isinstance(module, Projected) else module
    assert isinstance(linear, nn.Linear)
    return linear


def _projected(model: PreTrainedModel) -> dict[str, Projected]:
    """The modules behind a projector by path: the classifier's or the pooler's."""
    if kind_of(model.config) != "encoder" or head_type(model) is EMBEDDING:
        return {}
    found = {path: model.get_submodule(path) for path in (classifier_path(model), pooler_path(model)) if path}
    return {path: module for path, module in found.items() if isinstance(module, Projected)}


def head_of(model: PreTrainedModel) -> Head | None:
    """Return the head of a model with a projector; None for a plain model."""
    for path, module in _projected(model).items():
        return Head(
            reuse="linear" if path == classifier_path(model) else "pooler+linear",
            projector="linear" if isinstance(module.projector, nn.Linear) else "mlp",
            width=final_linear(model).in_features,
        )
    return None


def is_custom(model: PreTrainedModel) -> bool:
    """Return whether a model has a head that no plain model can represent."""
    head = head_of(model)
    return head is not None and not head.folds(sizes(model.config).width)


def folded(model: PreTrainedModel) -> PreTrainedModel:
    """Return a plain copy with the same logits; a plain model, or one with a custom head, is returned unchanged."""
    if is_custom(model) or not _projected(model):
        return model
    plain = copy.deepcopy(model)
    for path, module in _projected(plain).items():
        _replace(plain, path, module.folded())
    return plain


def exported_parameters(model: PreTrainedModel) -> int:
    """Return the number of parameters of the exported model."""
    count = sum(tensor.numel() for tensor in model.parameters())
    if is_custom(model):
        return count
    for module in _projected(model).values():
        count -= sum(tensor.numel() for tensor in module.parameters())
        count += sum(tensor.numel() for tensor in module.folded().parameters())
    return count
