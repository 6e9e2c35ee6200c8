"""Combinations of several teacher layers into one target."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stillery import declare

__all__ = ["attend"]


@declare.combination("attend", "teacher layers weighted by the softmax of their dot products with the student")
def attend(student: Tensor, teachers: Sequence[Tensor], *, scale: bool = False, detach: bool = False) -> Tensor:
    """ALP-KD: the mean of the teacher layers, weighted by the softmax of their dot products with the student.

    e_jk = softmax_k(h_Sj . h_Tk); the target is sum_k e_jk h_Tk. `scale` divides the products by the square root of
    the width, `detach` keeps the gradient from flowing through the weights.
    """
    stacked = torch.stack(list(teachers), dim=-2).to(student.dtype)
    products = (stacked @ student.unsqueeze(-1)).squeeze(-1)
    weights = (products / student.shape[-1] ** 0.5 if scale else products).softmax(-1)
    if detach:
        weights = weights.detach()
    return (weights.unsqueeze(-1) * stacked).sum(-2)
