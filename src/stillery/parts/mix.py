"""MixUp on embeddings: CR-ILD, section 4.1."""

from __future__ import annotations

import numpy as np
from torch import Tensor

__all__ = ["draw", "mixed_mask", "mixup"]


def mixup(embeddings: Tensor, lam: float, partner: Tensor) -> Tensor:
    """MixUp of embeddings [batch, ...]: lam * h_i + (1 - lam) * h_j with j = partner[i].

    Outputs are mixed the same way: the consistency target is the `mixup` of a layer's states or attention maps.
    """
    return lam * embeddings + (1 - lam) * embeddings[partner]


def mixed_mask(mask: Tensor, lam: float, partner: Tensor) -> Tensor:
    """The token mask of mixed examples: the union of both masks, or one of them alone where lam is 1 or 0.

    So lam = 1 is exactly no MixUp, also for texts of different lengths.
    """
    if lam == 1:
        return mask
    return mask[partner] if lam == 0 else mask | mask[partner]


def draw(
    size: int, alpha: float, pairing: str, seed: tuple[int, ...], *, larger: bool = False
) -> tuple[float, list[int]]:
    """Draw lambda from Beta(alpha, alpha), one per step, and a partner for each example; a pure function of the seed.

    Partners are mutual, so that micro-batches need not separate them; of an odd number one example is its own partner.
    `pairing` is `random` (the paper) or `reverse` (the released code: the batch in reversed order); `larger` takes
    max(lambda, 1 - lambda) as the released code does.
    """
    random = np.random.default_rng(list(seed))
    lam = float(random.beta(alpha, alpha))
    partners = np.arange(size)[::-1].copy()
    if pairing == "random":
        # In a random order, the first is paired with the last, the second with the last but one, and so on.
        order = random.permutation(size)
        partners[order] = order[::-1]
    return (max(lam, 1 - lam) if larger else lam), partners.tolist()
