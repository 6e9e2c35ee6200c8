"""How far two representations are apart: the one place for masks and reductions.

Every distance takes `student` and `teacher` of one shape, `[batch, width]` or `[batch, tokens, width]`, and a mask
`[batch, tokens]` that is 1 on real tokens. A *row* is the last axis; masked rows never count. Reductions:

- `mean`: mean over all valid elements;
- `batchmean`: sum over width, then mean over valid rows;
- `sum`: sum over everything valid;
- `batchmean_twice`: `batchmean` divided by the batch size once more, as the released layer-selection code does for
  BERT. It depends on the batch size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["REDUCTIONS", "mse", "normalised_mse", "reduce_rows"]

REDUCTIONS = ("mean", "batchmean", "sum", "batchmean_twice")


def reduce_rows(rows: Tensor, width: int, mask: Tensor | None, reduction: str) -> Tensor:
    """Reduce per-row sums `[batch]` or `[batch, tokens]` to a scalar, leaving masked rows out."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"unknown reduction {reduction!r}; known: {', '.join(REDUCTIONS)}")
    if mask is None:
        total, count = rows.sum(), rows.new_tensor(float(rows.numel()))
    else:
        valid = mask.to(torch.bool)
        # where, not multiplication: a masked row may hold inf or nan.
        total, count = torch.where(valid, rows, rows.new_zeros(())).sum(), valid.sum().to(rows.dtype)
    if reduction == "sum":
        return total
    mean_row = total / count.clamp_min(1.0)
    if reduction == "mean":
        return mean_row / width
    return mean_row if reduction == "batchmean" else mean_row / rows.shape[0]


def mse(student: Tensor, teacher: Tensor, mask: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """Squared error of two sets of rows.

    Layer selection, L_hid: `mean` is the form of its BART and T5 code (and our default), `batchmean_twice` of its
    BERT code.
    """
    rows = (student.float() - teacher.float()).square().sum(-1)
    return reduce_rows(rows, student.shape[-1], mask, reduction)


def normalised_mse(student: Tensor, teacher: Tensor, mask: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """Squared error after scaling each row to unit length: PKD, L_PT.

    Per row the sum is 2 - 2 cos, between 0 and 4. The paper writes the sum; its released code, and beta of 10 to
    1000, mean the `mean` over all elements.
    """
    return mse(F.normalize(student.float(), dim=-1), F.normalize(teacher.float(), dim=-1), mask, reduction)
