"""Eval mode and device placement of models for inference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel

from stillery.models.attention import for_any_length

__all__ = ["device_of", "evaluating", "to_device"]


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Run the block in eval mode (no dropout) and restore the mode of every module afterwards.

    Attention kernels are chosen for inputs of many lengths (`for_any_length`).
    """
    # Per module, because a frozen submodule may be in eval mode inside a model in training mode.
    before = [(module, module.training) for model in models for module in model.modules()]
    for model in models:
        model.eval()
    try:
        with for_any_length():
            yield
    finally:
        for module, training in before:
            module.training = training


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's weights."""
    return next(model.parameters()).device


def to_device(model: PreTrainedModel) -> None:
    """Move a model for inference to the GPU, if there is one."""
    if torch.cuda.is_available():
        model.to("cuda")  # type: ignore[arg-type]
