"""Park et al. (2021), Distilling Linguistic Context for Language Model Compression."""

from __future__ import annotations

from functools import partial

from stillery.methods._stages import joint
from stillery.parts import distance, pair, represent
from stillery.recipe import Match, Recipe

__all__ = ["ckd_context"]


def ckd_context(
    *,
    hard_weight: float = 0.0,
    soft_weight: float = 1.0,
    temperature: float = 2.0,
    word_weight: float = 1.0,
    layer_weight: float = 1.0,
) -> Recipe:
    """CKD: how the words of a text relate in each layer, and how a word's states relate between layers.

    Both relations are cosines, softmaxed without a word or layer and itself, and compared by KL(teacher || student),
    embedding and evenly spaced layers. The released code adds relations of three (angles) in windows of 21 words; those
    are left out.
    """
    words = Match(
        name="word_relations", represent=represent.word_relations, pair=partial(pair.forward, embedding=True),
        distance=distance.kl, reduction="batchmean", over_pairs="mean", weight=word_weight,
    )  # fmt: skip
    layers = Match(
        name="layer_relations", represent=represent.layer_relations, pair=pair.together,
        distance=distance.kl, reduction="batchmean", weight=layer_weight,
    )  # fmt: skip
    return joint(words, layers, hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature)
