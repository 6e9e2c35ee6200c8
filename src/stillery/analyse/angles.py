"""Angles between teacher layers seen from a student layer: layer selection, section 4 (arXiv 2502.04499).

If the directions from a student's hidden state to two teacher layers are similar, matching either layer moves the
student in the same direction, so the choice between them matters little.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Angles", "angle_cosine", "angles"]

EPSILON = 1e-6
"""Added to the product of the norms, as in the released code."""


@dataclass(frozen=True, kw_only=True)
class Angles:
    """Cosines over all real tokens: their mean, the share of acute angles, and a histogram over [-1, 1]."""

    mean: float
    acute: float
    histogram: tuple[int, ...]


def angle_cosine(student: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the cosine of the angle at the student's state between two teacher states, all [..., width].

    cos = u.v / (|u| |v| + 1e-6) with u = T_i - S_k and v = T_j - S_k. The released code keeps only the pair (1, N) and
    the first student layer, and includes padding; here any three states may be compared.
    """
    to_first, to_second = first - student, second - student
    lengths = to_first.norm(dim=-1) * to_second.norm(dim=-1)
    cosine: Tensor = (to_first * to_second).sum(-1) / (lengths + EPSILON)
    return cosine


def angles(student: Tensor, first: Tensor, second: Tensor, mask: Tensor, bins: int = 100) -> Angles:
    """Summarise the angles over all real tokens of states [batch, tokens, width], with a mask [batch, tokens]."""
    cosines = angle_cosine(student, first, second)[mask.to(torch.bool)]
    counts = torch.histc(cosines.float(), bins=bins, min=-1.0, max=1.0)
    return Angles(
        mean=float(cosines.mean()),
        acute=float((cosines > 0).double().mean()),
        histogram=tuple(int(count) for count in counts),
    )
