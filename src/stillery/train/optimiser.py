"""AdamW over all trained parameters, with weight decay on matrices only."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["adamw", "parameter_groups", "set_rate"]


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Trained parameters in two groups: matrices decay, biases and norms (one axis) do not."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trained if parameter.ndim > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim <= 1], "weight_decay": 0.0},
    ]


def adamw(module: nn.Module, lr: float, weight_decay: float) -> torch.optim.AdamW:
    """Create the optimiser of a stage; on a GPU the learning rate is a device tensor that a recorded step reads."""
    groups = parameter_groups(module, weight_decay)
    device = next(module.parameters()).device
    if device.type != "cuda":
        return torch.optim.AdamW(groups, lr=lr, fused=True)
    return torch.optim.AdamW(groups, lr=torch.tensor(lr, device=device), fused=True, capturable=True)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all groups."""
    filled: list[Tensor] = []
    for group in optimiser.param_groups:
        there = group["lr"]
        if not isinstance(there, Tensor):
            group["lr"] = rate
        elif not any(there is one for one in filled):
            # Groups may share one tensor.
            filled.append(there.fill_(rate))
