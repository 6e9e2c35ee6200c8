"""Rank and alignment of trained linear maps: a map whose rank has collapsed carries little of a layer any more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["MapShape", "map_shape", "maps_cosine"]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class MapShape:
    """The singular values of a map, largest first, its effective rank, and that of a random matrix of this shape."""

    singular: Array
    rank: float
    random: float

    @property
    def possible(self) -> int:
        """The largest rank it could have."""
        return len(self.singular)

    @property
    def collapsed(self) -> bool:
        """Whether its effective rank is below a tenth of a random matrix's."""
        return self.rank < 0.1 * self.random


def map_shape(weight: Array) -> MapShape:
    """Return the shape of a map [new width, width]."""
    random = np.random.default_rng(0).standard_normal(weight.shape)
    singular, drawn = (np.asarray(np.linalg.svd(one, compute_uv=False), dtype=np.float64) for one in (weight, random))
    return MapShape(singular=singular, rank=effective_rank(singular), random=effective_rank(drawn))


def effective_rank(singular: Array) -> float:
    """Return exp of the entropy of the squared singular values' shares: n where n are equal and all others 0."""
    energy = singular.astype(np.float64) ** 2
    if not energy.sum():
        return 0.0
    shares = energy[energy > 0] / energy.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def maps_cosine(one: Array, other: Array) -> float | None:
    """Return the cosine of two maps as vectors; None where their shapes differ."""
    if one.shape != other.shape:
        return None
    return float((one * other).sum() / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-300))
