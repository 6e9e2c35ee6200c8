"""AdamW over everything that is trained, weight decay on matrices only."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["adamw", "parameter_groups"]


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Trained parameters in two groups: matrices decay, biases and norms (one axis) do not."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trained if parameter.ndim > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim <= 1], "weight_decay": 0.0},
    ]


def adamw(module: nn.Module, lr: float, weight_decay: float) -> torch.optim.AdamW:
    """The optimiser of one stage."""
    return torch.optim.AdamW(parameter_groups(module, weight_decay), lr=lr, fused=True)
