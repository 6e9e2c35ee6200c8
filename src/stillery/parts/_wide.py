"""The precision that losses are computed in."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["wide"]


def wide(values: Tensor) -> Tensor:
    """The values in single precision, or in double precision if they already are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
