"""Precision of what is measured."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["wide"]


def wide(values: Tensor) -> Tensor:
    """At least single precision: half precision is widened, double precision stays."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
