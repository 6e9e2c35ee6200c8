"""Haidar et al. (2022), RAIL-KD: RAndom Intermediate Layer Mapping for Knowledge Distillation."""

from __future__ import annotations

from functools import partial
from typing import Literal

from stillery.declare import Group, Inferred, Paper, try_first
from stillery.methods._stages import joint
from stillery.parts import distance, pair, project, represent
from stillery.recipe import Match, Pair, Project, Recipe

__all__ = ["rail_kd", "rail_kd_concat"]

GROUP = Group.SEVERAL

ProjectionStart = Literal["same", "orthogonal", "literal"]


def _rail(
    which: Pair, projection: Project, *, hard: float, soft: float, temperature: float, layer: float, unmasked: bool
) -> Recipe:
    """Eq. 4: the three losses by equal thirds; eq. 2: squared, summed over width and layers, mean over the batch."""
    random_layers = Match(
        name="random_layers",
        represent=represent.unmasked_pool if unmasked else represent.pool,
        pair=which,
        project=projection,
        distance=distance.normalised_mse,
        reduction="batchmean",
        over_pairs="sum",
        weight=layer,
    )
    return joint(random_layers, hard_weight=hard, soft_weight=soft, temperature=temperature)


@try_first(5)
def rail_kd(
    *,
    hard_weight: Paper[float] = 1 / 3,
    soft_weight: Paper[float] = 1 / 3,
    temperature: Inferred[float] = 2.0,
    layer_weight: Paper[float] = 1 / 3,
    width: Paper[int] = 128,
    shared: Inferred[bool] = False,
    projection_start: Inferred[ProjectionStart] = "same",
    frozen_teacher: Inferred[bool] = True,
    unmasked: Inferred[bool] = False,
) -> Recipe:
    """Matches pooled states of teacher layers that are drawn anew each epoch.

    RAIL-KD, layer-wise: M-1 teacher layers drawn each epoch, in order; pooled, projected to 128, normalised. Both
    projections start as the same random matrix, and the teacher's is not trained. In the paper's literal reading they
    are two independent random matrices, both trained (`projection_start=literal`, `frozen_teacher=false`): the student
    first learns a random rotation, and both sides can collapse to one direction. `unmasked` pools over padding too, as
    eq. 1 is printed; `shared` uses one pair of projections for all layers.
    """
    maps = partial(project.both, width=width, shared=shared, start=projection_start, frozen_teacher=frozen_teacher)
    return _rail(
        pair.random_each_epoch, maps, hard=hard_weight, soft=soft_weight, temperature=temperature, layer=layer_weight,
        unmasked=unmasked,
    )  # fmt: skip


def rail_kd_concat(
    *,
    hard_weight: Paper[float] = 1 / 3,
    soft_weight: Paper[float] = 1 / 3,
    temperature: Inferred[float] = 2.0,
    layer_weight: Paper[float] = 1 / 3,
    width: Paper[int] = 128,
    projection_start: Inferred[ProjectionStart] = "same",
    frozen_teacher: Inferred[bool] = True,
    unmasked: Inferred[bool] = False,
) -> Recipe:
    """As rail-kd, with the drawn layers concatenated.

    RAIL-KD, concatenated: the pooled states of the drawn layers are concatenated, then projected to 128 (eq. 3).
    Projections and other options as for `rail-kd`.
    """
    maps = partial(project.both, width=width, start=projection_start, frozen_teacher=frozen_teacher)
    return _rail(
        pair.random_together, maps, hard=hard_weight, soft=soft_weight, temperature=temperature, layer=layer_weight,
        unmasked=unmasked,
    )  # fmt: skip
