"""Sun et al. (2020), Contrastive Distillation on Intermediate Representations for Language Model Compression."""

from __future__ import annotations

from functools import partial

from stillery.declare import Group, Inferred, ThirdParty
from stillery.methods._stages import joint
from stillery.parts import bank, distance, pair, represent
from stillery.recipe import Match, Recipe

__all__ = ["codir"]

GROUP = Group.SEVERAL


def codir(
    *,
    hard_weight: Inferred[float] = 0.5,
    soft_weight: Inferred[float] = 0.5,
    temperature: Inferred[float] = 2.0,
    layer_weight: Inferred[float] = 0.1,
    negatives: ThirdParty[int] = 100,
    contrast_temperature: ThirdParty[float] = 0.07,
    width: ThirdParty[int] = 128,
) -> Recipe:
    """Contrastive loss on all layers concatenated, with a memory bank.

    The layers' pooled states are concatenated. InfoNCE against `negatives` teacher states of other labels, from a
    memory bank with a row per example. The method is known from descriptions only; negatives are drawn from the whole
    bank, and those of the same label are left out.
    """
    contrast = Match(
        name="contrast", represent=represent.pool, pair=pair.all_together, distance=distance.contrastive,
        criterion=partial(bank.Bank, width=width, negatives=negatives, temperature=contrast_temperature),
        weight=layer_weight,
    )  # fmt: skip
    return joint(contrast, hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature)
