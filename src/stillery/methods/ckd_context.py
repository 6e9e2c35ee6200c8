"""Park et al. (2021), Distilling Linguistic Context for Language Model Compression."""

from __future__ import annotations

from functools import partial

from stillery.declare import Code, Group, Inferred
from stillery.methods._stages import joint
from stillery.parts import distance, pair
from stillery.parts import represent_relations as relations
from stillery.recipe import Match, Recipe

__all__ = ["ckd_context"]

GROUP = Group.ATTENTION


def ckd_context(
    *,
    hard_weight: Code[float] = 0.0,
    soft_weight: Code[float] = 1.0,
    temperature: Inferred[float] = 2.0,
    word_weight: Inferred[float] = 1.0,
    layer_weight: Inferred[float] = 1.0,
    angle_weight: Inferred[float] = 1.0,
) -> Recipe:
    """Relations between words within each layer, and of each word between layers.

    Pairwise relations are cosines; their softmax, without a word or layer and itself, is compared by
    KL(teacher || student). Triple-wise relations are the angles at a word (to two others within 10 words) or at a
    layer, compared by squared error, with `angle_weight` times the weight of the pairwise ones. They use the embedding
    and evenly spaced layers.
    """
    words = Match(
        name="word_relations", represent=relations.word_relations, pair=partial(pair.forward, embedding=True),
        distance=distance.kl, reduction="batchmean", over_pairs="mean", weight=word_weight,
    )  # fmt: skip
    layers = Match(
        name="layer_relations", represent=relations.layer_relations, pair=pair.together,
        distance=distance.kl, reduction="batchmean", weight=layer_weight,
    )  # fmt: skip
    word_angles = Match(
        name="word_angles", represent=relations.word_angles, pair=partial(pair.forward, embedding=True),
        distance=distance.mse, reduction="rowmean", over_pairs="mean", weight=word_weight * angle_weight,
    )  # fmt: skip
    layer_angles = Match(
        name="layer_angles", represent=relations.layer_angles, pair=pair.together,
        distance=distance.mse, reduction="rowmean", weight=layer_weight * angle_weight,
    )  # fmt: skip
    return joint(
        words,
        word_angles,
        layers,
        layer_angles,
        hard_weight=hard_weight,
        soft_weight=soft_weight,
        temperature=temperature,
    )
