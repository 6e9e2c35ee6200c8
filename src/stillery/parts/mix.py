"""MixUp on embeddings: CR-ILD, section 4.1."""

from __future__ import annotations

import numpy as np
from torch import Tensor

__all__ = ["draw", "mixed_mask", "mixup"]


def mixup(embeddings: Tensor, lam: float, partner: Tensor) -> Tensor:
    """Lam * h_i + (1 - lam) * h_j, with j = partner[i]: embeddings [batch, ...], partner [batch].

    The same mix serves outputs: the consistency target is `mixup` of a layer's states or attention maps.
    """
    return lam * embeddings + (1 - lam) * embeddings[partner]


def mixed_mask(mask: Tensor, lam: float, partner: Tensor) -> Tensor:
    """The token mask of mixed examples: the union of both, or one of them alone where lam is 1 or 0.

    So lam = 1 is exactly no MixUp, on ragged batches too.
    """
    if lam == 1:
        return mask
    return mask[partner] if lam == 0 else mask | mask[partner]


def draw(
    size: int, alpha: float, pairing: str, seed: tuple[int, ...], *, larger: bool = False
) -> tuple[float, list[int]]:
    """Lambda of Beta(alpha, alpha), one per step, and a partner for each example; a pure function of the seed.

    Partners are mutual, so that a step can be cut without parting them; of an odd number one example is its own.
    `pairing` is `random` (the paper) or `reverse` (the released code: the batch in reversed order); `larger` takes
    max(lambda, 1 - lambda) as the released code does.
    """
    random = np.random.default_rng(list(seed))
    lam = float(random.beta(alpha, alpha))
    partners = np.arange(size)[::-1].copy()
    if pairing == "random":
        # In any order the first meets the last, the second the last but one, and so on.
        order = random.permutation(size)
        partners[order] = order[::-1]
    return (max(lam, 1 - lam) if larger else lam), partners.tolist()
