"""Haidar et al. (2022), RAIL-KD: RAndom Intermediate Layer Mapping for Knowledge Distillation."""

from __future__ import annotations

from functools import partial

from stillery.methods._stages import joint
from stillery.parts import distance, pair, project, represent
from stillery.recipe import Match, Pair, Recipe

__all__ = ["rail_kd", "rail_kd_concat"]


def _rail(
    which: Pair, hard: float, soft: float, temperature: float, layer: float, width: int, unmasked: bool, shared: bool,
    frozen_teacher: bool,
) -> Recipe:  # fmt: skip
    """Eq. 4: the three losses by equal thirds; eq. 2: squared, summed over width and layers, mean over the batch."""
    random_layers = Match(
        name="random_layers",
        represent=represent.unmasked_pool if unmasked else represent.pool,
        pair=which,
        project=partial(project.both, width=width, shared=shared, frozen_teacher=frozen_teacher),
        distance=distance.normalised_mse,
        reduction="batchmean",
        over_pairs="sum",
        weight=layer,
    )
    return joint(random_layers, hard_weight=hard, soft_weight=soft, temperature=temperature)


def rail_kd(
    *,
    hard_weight: float = 1 / 3,
    soft_weight: float = 1 / 3,
    temperature: float = 2.0,
    layer_weight: float = 1 / 3,
    width: int = 128,
    shared: bool = False,
    frozen_teacher: bool = False,
    unmasked: bool = False,
) -> Recipe:
    """RAIL-KD, layer-wise: M-1 teacher layers drawn each epoch, in order; pooled, projected to 128, normalised.

    `unmasked` pools over padding too, as eq. 1 is printed; `shared` takes one pair of projections for all layers.
    """
    return _rail(
        pair.random_each_epoch, hard_weight, soft_weight, temperature, layer_weight, width, unmasked, shared,
        frozen_teacher,
    )  # fmt: skip


def rail_kd_concat(
    *,
    hard_weight: float = 1 / 3,
    soft_weight: float = 1 / 3,
    temperature: float = 2.0,
    layer_weight: float = 1 / 3,
    width: int = 128,
    frozen_teacher: bool = False,
    unmasked: bool = False,
) -> Recipe:
    """RAIL-KD, concatenated: the drawn layers' pooled states side by side, projected to 128 as one (eq. 3)."""
    return _rail(
        pair.random_together, hard_weight, soft_weight, temperature, layer_weight, width, unmasked, False,
        frozen_teacher,
    )  # fmt: skip
