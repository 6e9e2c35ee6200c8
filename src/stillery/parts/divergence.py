"""Matching of predictions. Every function takes logits [batch, classes] and returns the mean over the batch."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

__all__ = ["kl", "logit_mse", "soft_ce"]


def kl(student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, square: bool = True) -> Tensor:
    """KL(teacher || student) of the softened predictions, times T^2 when `square` (Hinton et al., 2015).

    `square` keeps the gradient's scale independent of the temperature.
    """
    student = F.log_softmax(student_logits.float() / temperature, dim=-1)
    teacher = F.log_softmax(teacher_logits.float() / temperature, dim=-1)
    value = (teacher.exp() * (teacher - student)).sum(-1).mean()
    return value * temperature**2 if square else value


def soft_ce(student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, square: bool = True) -> Tensor:
    """Cross entropy against the teacher's softened predictions: `kl` plus the teacher's entropy, the same gradient."""
    student = F.log_softmax(student_logits.float() / temperature, dim=-1)
    teacher = F.softmax(teacher_logits.float() / temperature, dim=-1)
    value = -(teacher * student).sum(-1).mean()
    return value * temperature**2 if square else value


def logit_mse(student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, square: bool = True) -> Tensor:
    """Mean squared error of the raw outputs, what regression uses: the temperature cancels against its square."""
    value = F.mse_loss(student_logits.float(), teacher_logits.float())
    return value if square else value / temperature**2
