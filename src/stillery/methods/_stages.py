"""Recipes of one or two stages, which several methods share."""

from __future__ import annotations

from stillery.parts import divergence
from stillery.recipe import LEAST_STEPS, Match, Mixing, Prediction, Recipe, Stage

__all__ = ["joint", "layers_then_prediction"]


def joint(
    *matches: Match,
    hard_weight: float,
    soft_weight: float | None,
    temperature: float,
    square: bool = True,
    init: str | None = None,
    head: str = "fresh",
) -> Recipe:
    """One stage with all losses; a `soft_weight` of None means 1 - hard_weight."""
    soft = 1.0 - hard_weight if soft_weight is None else soft_weight
    prediction = Prediction(divergence=divergence.kl, temperature=temperature, square=square, weight=soft)
    stage = Stage(hard_weight=hard_weight, prediction=prediction if soft else None, matches=matches)
    return Recipe(stages=(stage,), init=init, head=head)


def layers_then_prediction(
    *matches: Match,
    hard_weight: float,
    soft_weight: float | None,
    temperature: float,
    layer_share: float = 5.0,
    least_steps: int = LEAST_STEPS,
    init: str | None = None,
    init_measured: bool = False,
    mixing: Mixing | None = None,
) -> Recipe:
    """A hidden-state stage without labels, then a stage of prediction distillation.

    The steps are divided 5 to 1, as 20 and 4 epochs in the papers. In a short run prediction distillation has at least
    `least_steps`, or three quarters of the run; with fewer the new classifier is not learnt.
    """
    prediction = joint(hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature).stages[0]
    layers = Stage(name="layers", matches=matches, hard_weight=0.0, share=layer_share, mixing=mixing)
    second = Stage(name="prediction", prediction=prediction.prediction, hard_weight=hard_weight, share=1.0,
                   least_steps=least_steps)  # fmt: skip
    return Recipe(stages=(layers, second), init=init, init_measured=init_measured)
