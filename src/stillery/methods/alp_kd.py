"""Passban et al. (2021), ALP-KD: Attention-Based Layer Projection for Knowledge Distillation."""

from __future__ import annotations

from functools import partial
from typing import Literal

from stillery.declare import Group, Inferred, ThirdParty
from stillery.methods._stages import joint
from stillery.parts import combine, distance, pair, project, represent
from stillery.recipe import Match, Recipe

__all__ = ["alp_kd"]

GROUP = Group.SEVERAL


def alp_kd(
    *,
    hard_weight: Inferred[float] = 1 / 3,
    soft_weight: Inferred[float] = 1 / 3,
    temperature: Inferred[float] = 2.0,
    layer_weight: ThirdParty[float] = 100 / 3,
    states: ThirdParty[Literal["cls", "pool"]] = "cls",
    scale: ThirdParty[bool] = False,
    detach: ThirdParty[bool] = False,
) -> Recipe:
    """Each student layer matches an attention-weighted mean of all teacher layers.

    The weights are the softmax of the teacher layers' dot products with the student's. Student layers 1..M-1 and
    teacher layers 1..N-1, as RAIL-KD describes it. Where the widths differ, one linear map projects all teacher states
    to the student's width. `scale` divides the products by the square root of the width, `detach` stops the gradient
    through the weights.
    """
    attended = Match(
        name="attended_layers",
        represent=represent.cls if states == "cls" else represent.pool,
        pair=pair.every_layer,
        project=partial(project.to_student, bias=False, shared=True, always=False),
        combine=partial(combine.attend, scale=scale, detach=detach),
        distance=distance.mse,
        reduction="mean",
        over_pairs="mean",
        weight=layer_weight,
    )
    return joint(attended, hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature)
