"""Hinton, Vinyals and Dean (2015), Distilling the Knowledge in a Neural Network; and training without a teacher."""

from __future__ import annotations

from stillery.declare import Group, Inferred, Paper, try_first
from stillery.parts import divergence
from stillery.recipe import Prediction, Recipe, Stage

__all__ = ["kd", "none"]

GROUP = Group.BASELINE


@try_first(1)
def none(*, hard_weight: Inferred[float] = 1.0) -> Recipe:
    """No distillation: the student is trained on the labels alone; the baseline."""
    return Recipe(stages=(Stage(hard_weight=hard_weight),))


@try_first(2)
def kd(
    *,
    hard_weight: Inferred[float] = 0.5,
    soft_weight: Inferred[float | None] = None,
    temperature: Inferred[float] = 2.0,
    square: Paper[bool] = True,
) -> Recipe:
    """The student matches the teacher's predictions only, no layers.

    hard_weight * CE + soft_weight * T^2 * KL(teacher || student).
    `soft_weight` defaults to 1 - hard_weight; `square=False` leaves T^2 out.
    """
    soft = 1.0 - hard_weight if soft_weight is None else soft_weight
    prediction = Prediction(divergence=divergence.kl, temperature=temperature, square=square, weight=soft)
    return Recipe(stages=(Stage(hard_weight=hard_weight, prediction=prediction),))
