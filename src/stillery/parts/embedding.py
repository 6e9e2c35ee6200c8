"""Divergences of embeddings, vectors [batch, size] of which the direction counts.

They stand where the divergences of predictions do, and have their signature; an embedding has no temperature.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from stillery import declare
from stillery.parts._wide import wide
from stillery.recipe import Divergence

__all__ = ["USUAL", "cosine", "similarity", "with_similarity"]

USUAL = "cosine"
"""The divergence of embeddings where none is chosen."""


@declare.divergence("cosine", "1 - cosine of the raw outputs, such as two embeddings of a text", raw=True)
def cosine(student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, square: bool = True) -> Tensor:
    """1 - cos(s_i, t_i), mean over the batch; between 0 and 2."""
    return (1 - F.cosine_similarity(wide(student_logits), wide(teacher_logits), dim=-1)).mean()


@declare.divergence(
    "similarity", "difference of the batch's cosine similarities, text by text", raw=True, together=True
)
def similarity(student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, square: bool = True) -> Tensor:
    """Mean over i != j of (cos(s_i, s_j) - cos(t_i, t_j))^2 (Tung and Mori, 2019, with rows of length 1 beforehand).

    The two sizes may differ, because only similarities are compared. A batch of one text has none: then it is 0.
    """
    ours, theirs = (F.normalize(wide(one), dim=-1) for one in (student_logits, teacher_logits))
    # The diagonal is 1 on both sides, and only rounding differs there.
    gaps = (ours @ ours.T - theirs @ theirs.T).fill_diagonal_(0.0)
    texts = len(gaps)
    return gaps.square().sum() / max(texts * (texts - 1), 1)


@declare.divergence(None, "a divergence, and a weight times `similarity`", raw=True, together=True)
def with_similarity(
    student_logits: Tensor,
    teacher_logits: Tensor,
    temperature: float = 1.0,
    square: bool = True,
    *,
    divergence: Divergence,
    weight: float,
) -> Tensor:
    """Return a divergence plus `weight` times the difference of the batch's similarities."""
    own = divergence(student_logits, teacher_logits, temperature, square)
    return own + weight * similarity(student_logits, teacher_logits)
