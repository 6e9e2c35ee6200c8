"""RAIL-KD against its collapse: recipes beside its own options, for `benchmarks/glue.py --methods FILE.py:FUNCTION`.

Both keep the paper's two projections, drawn each by itself and both trained. `centred` takes the mean over the batch
out of the pooled states, which share a large one; `guarded` asks the student's projected rows to vary as much as the
teacher's do.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

from stillery import declare, methods
from stillery.parts.distance import normalised_mse
from stillery.recipe import Distance, Recipe


@declare.distance("rail-centred", "rows of unit length less their mean over the batch", over="rows", together=True)
def _centred(student: Tensor, teacher: Tensor, mask: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """Squared error of rows of unit length after their mean is taken out; the projections have no bias."""
    return normalised_mse(student - student.mean(0), teacher - teacher.mean(0), mask, reduction)


@declare.distance("rail-guarded", "rows of unit length, and what their spread lacks", over="rows", together=True)
def _guarded(student: Tensor, teacher: Tensor, mask: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """Squared error of rows of unit length, and what their spread over the batch lacks of untrained rows'."""
    wanted = student.shape[-1] ** -0.5
    spreads = torch.stack(
        [F.normalize(rows, dim=-1).var(0, correction=0).add(1e-6).sqrt() for rows in (student, teacher)]
    )
    return normalised_mse(student, teacher, mask, reduction) + F.relu(wanted - spreads).mean(-1).sum() / wanted


def _literal(distance: Distance) -> Recipe:
    recipe = methods.build("rail-kd", {"projection_start": "literal", "frozen_teacher": False})
    (stage,) = recipe.stages
    (match,) = stage.matches
    return dataclasses.replace(
        recipe, stages=(dataclasses.replace(stage, matches=(dataclasses.replace(match, distance=distance),)),)
    )


def centred() -> Recipe:
    """RAIL-KD read literally, its projected states centred over the batch."""
    return _literal(_centred)


def guarded() -> Recipe:
    """RAIL-KD read literally, with a term that keeps projected states from becoming equal."""
    return _literal(_guarded)
