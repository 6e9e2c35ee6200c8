"""Rows of unit length."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["unit"]

_LEAST = 1e-12


class _Unit(torch.autograd.Function):
    """x / |x|, with its gradient (g - y (g.y)) / |x| in four operations, where torch's own takes three times as many.

    On a GPU that replays a recorded step, a small operation costs as much as a large one.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_min(_LEAST)
        made: Tensor = rows / length
        ctx.save_for_backward(made, length)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        made, length = ctx.saved_tensors
        along = (gradient * made).sum(-1, keepdim=True)
        found: Tensor = torch.addcmul(gradient, made, along, value=-1) / length
        return found


def unit(rows: Tensor) -> Tensor:
    """Rows (the last axis) scaled to unit length, as `F.normalize` does; a row of zeros stays one."""
    scaled: Tensor = _Unit.apply(rows)  # type: ignore[no-untyped-call]
    return scaled
