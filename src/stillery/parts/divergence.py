"""Divergences of student and teacher predictions.

Every function takes logits [batch, classes] and returns the mean over the batch. `square` multiplies by T^2, which
keeps the scale of the gradient independent of the temperature T.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from stillery import declare
from stillery.parts._wide import wide
from stillery.recipe import Divergence

__all__ = ["js", "kl", "logit_mse", "per_label", "reverse_kl", "soft_ce", "tvd"]


def _softened(student: Tensor, teacher: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probabilities of both models at the temperature."""
    return (
        F.log_softmax(wide(student) / temperature, dim=-1),
        F.log_softmax(wide(teacher) / temperature, dim=-1),
    )


def _mean_row(terms: Tensor, temperature: float, square: bool) -> Tensor:
    """The sum of terms [batch, classes] over the classes, mean over the batch."""
    return terms.sum() * ((temperature**2 if square else 1.0) / max(len(terms), 1))


@declare.divergence("kl", "KL(teacher || student): covers all the teacher finds likely")
def kl(student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, square: bool = True) -> Tensor:
    """KL(teacher || student) of the softened predictions (Hinton et al., 2015): covers all the teacher finds likely."""
    student, teacher = _softened(student_logits, teacher_logits, temperature)
    return _mean_row(teacher.exp() * (teacher - student), temperature, square)


@declare.divergence("reverse-kl", "KL(student || teacher): seeks one of the teacher's modes")
def reverse_kl(student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, square: bool = True) -> Tensor:
    """KL(student || teacher) of the softened predictions: seeks one of the teacher's modes."""
    student, teacher = _softened(student_logits, teacher_logits, temperature)
    return _mean_row(student.exp() * (student - teacher), temperature, square)


@declare.divergence("js", "Jensen-Shannon divergence, between 0 and log 2")
def js(student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, square: bool = True) -> Tensor:
    """Jensen-Shannon divergence: the mean of both sides' KL to their average; between 0 and log 2."""
    student, teacher = _softened(student_logits, teacher_logits, temperature)
    middle = student.logaddexp(teacher) - math.log(2)
    both = teacher.exp() * (teacher - middle) + student.exp() * (student - middle)
    return _mean_row(both / 2, temperature, square)


@declare.divergence("tvd", "total variation distance, between 0 and 1")
def tvd(student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, square: bool = True) -> Tensor:
    """Total variation distance: half the sum of absolute differences; between 0 and 1."""
    student, teacher = _softened(student_logits, teacher_logits, temperature)
    return _mean_row((student.exp() - teacher.exp()).abs() / 2, temperature, square)


@declare.divergence("soft-ce", "cross entropy against the teacher's predictions")
def soft_ce(student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, square: bool = True) -> Tensor:
    """Cross entropy against the teacher's softened predictions: `kl` plus the teacher's entropy, the same gradient."""
    student, teacher = _softened(student_logits, teacher_logits, temperature)
    return _mean_row(-teacher.exp() * student, temperature, square)


@declare.divergence("mse", "mean squared error of the raw outputs", raw=True)
def logit_mse(student_logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0, square: bool = True) -> Tensor:
    """Mean squared error of the raw outputs, what regression uses: the temperature cancels against its square."""
    mean = F.mse_loss(wide(student_logits), wide(teacher_logits))
    return mean if square else mean / temperature**2


def per_label(
    divergence: Divergence,
    student_logits: Tensor,
    teacher_logits: Tensor,
    temperature: float = 1.0,
    square: bool = True,
) -> Tensor:
    """A divergence of several binary labels: of the two classes of each label, mean over labels.

    A divergence of raw outputs (`mse`) compares the one output of each label as it is.
    """
    declaration = declare.facts_of(divergence)
    if declaration is not None and declaration.raw:
        return divergence(student_logits, teacher_logits, temperature, square)
    return divergence(_yes_and_no(student_logits), _yes_and_no(teacher_logits), temperature, square)


def _yes_and_no(logits: Tensor) -> Tensor:
    """Outputs [batch, labels] as logits of two classes [batch * labels, 2]: sigmoid(x) is the softmax of (x, 0)."""
    return torch.stack([logits, torch.zeros_like(logits)], dim=-1).flatten(0, -2)
