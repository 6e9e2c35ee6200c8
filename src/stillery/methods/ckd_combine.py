"""Wu et al. (2020), Why Skip If You Can Combine: A Simple Knowledge Distillation Technique for Intermediate Layers."""

from __future__ import annotations

from functools import partial
from typing import Literal

from stillery.declare import Code, Group, Inferred
from stillery.methods._stages import joint
from stillery.parts import distance, pair, project, represent
from stillery.recipe import Match, Recipe

__all__ = ["ckd_combine"]

GROUP = Group.SEVERAL


def ckd_combine(
    *,
    hard_weight: Code[float] = 0.1,
    soft_weight: Code[float] = 0.2,
    temperature: Inferred[float] = 2.0,
    layer_weight: Code[float] = 0.7,
    partition: Code[Literal["regular", "overlap", "skip-middle", "cross"]] = "regular",
    states: Inferred[Literal["cls", "pool", "tokens"]] = "cls",
) -> Recipe:
    """Each student layer matches a block of concatenated teacher layers.

    The block is projected to the student's width. `partition` divides the teacher's layers: regular blocks, blocks that
    overlap by a layer, or for two student layers skip-middle and cross. Other blocks: `pair.block(partitions=...)` in a
    recipe of your own.
    """
    combined = Match(
        name="combined_layers",
        represent={"cls": represent.cls, "pool": represent.pool, "tokens": represent.tokens}[states],
        pair=partial(pair.block, partition=partition),
        project=project.to_student,
        distance=distance.mse,
        reduction="mean",
        over_pairs="mean",
        weight=layer_weight,
    )
    return joint(combined, hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature)
