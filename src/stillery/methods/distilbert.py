"""Sanh et al. (2019), DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter."""

from __future__ import annotations

from stillery.declare import Code, Group, Inferred
from stillery.methods._stages import joint
from stillery.parts import distance, pair, project, represent
from stillery.recipe import Match, Recipe

__all__ = ["distilbert"]

GROUP = Group.ONE_TO_ONE


def distilbert(
    *,
    hard_weight: Inferred[float] = 0.25,
    soft_weight: Inferred[float] = 0.625,
    temperature: Code[float] = 2.0,
    layer_weight: Inferred[float] = 0.125,
) -> Recipe:
    """Labels, predictions, and the cosine of the last layers' token states.

    DistilBERT's triple loss for a task; the third term is 1 - cos.
    """
    cosine = Match(
        name="cosine",
        represent=represent.tokens,
        pair=pair.last_layer,
        project=project.to_teacher,
        distance=distance.cosine,
        weight=layer_weight,
    )
    return joint(cosine, hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature, init="even")
