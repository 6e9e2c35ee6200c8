"""Sun et al. (2019), Patient Knowledge Distillation for BERT Model Compression."""

from __future__ import annotations

from typing import Literal

from stillery.declare import Code, Grid, Group, Paper, try_first
from stillery.parts import distance, divergence, pair, project, represent
from stillery.recipe import Match, Prediction, Recipe, Stage

__all__ = ["pkd"]

GROUP = Group.ONE_TO_ONE


@try_first(4)
def pkd(
    *,
    layers: Paper[Literal["skip", "last"]] = "skip",
    hard_weight: Grid[float] = 0.5,
    soft_weight: Paper[float | None] = None,
    temperature: Grid[float] = 10.0,
    square: Code[bool] = True,
    layer_weight: Grid[float] = 100.0,
    normalise: Paper[bool] = True,
) -> Recipe:
    """Matches normalised [CLS] states of evenly spaced layers, and predictions.

    Patient KD: (1 - a) CE + a T^2 KL + b L_PT on the normalised [CLS] states of student layers 1..M-1. L_PT (eq. 7) is
    averaged over batch, layers and width as in the released code; the paper prints a sum. Where the widths differ a
    linear map per layer projects the student's states to the teacher's width.
    """
    soft = 1.0 - hard_weight if soft_weight is None else soft_weight
    patience = Match(
        name="patience",
        represent=represent.cls,
        pair=pair.skip if layers == "skip" else pair.last,
        project=project.to_teacher,
        distance=distance.normalised_mse if normalise else distance.mse,
        reduction="mean",
        over_pairs="mean",
        weight=layer_weight,
    )
    prediction = Prediction(divergence=divergence.kl, temperature=temperature, square=square, weight=soft)
    return Recipe(stages=(Stage(hard_weight=hard_weight, prediction=prediction, matches=(patience,)),), init="first")
