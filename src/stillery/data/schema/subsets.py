"""Subsampling and label noise of the training split, to compare the robustness of methods."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.errors import UserError

__all__ = ["draw_groups", "draw_samples", "flip_labels"]


def draw_samples(examples: int, samples: int, seed: int = 0) -> NDArray[np.int64]:
    """Draw the indices of `samples` examples, ascending; labels are ignored, as in the papers.

    A pure function of its arguments; with the same seed, a smaller sample is a subset of a larger one.

    >>> len(draw_samples(10, 4)), set(draw_samples(10, 3)) < set(draw_samples(10, 4))
    (4, True)
    """
    if not 1 <= samples <= examples:
        raise UserError(
            f"{samples} samples: there are {examples} training examples, so give a number from 1 to {examples}"
        )
    order = np.random.default_rng([seed, 0x5A3B1E]).permutation(examples)
    return np.sort(order[:samples]).astype(np.int64)


def draw_groups(groups: NDArray[np.int64], samples: int, seed: int = 0) -> NDArray[np.int64]:
    """Draw whole groups of examples until they have `samples` or more; return the indices of the examples, ascending.

    Args:
        groups: the group of each example, from 0 on `[n]`.
        samples: the least number of examples.
        seed: a pure function of it and the other arguments.
    """
    sizes = np.bincount(groups)
    order = np.random.default_rng([seed, 0x5A3B1E]).permutation(len(sizes))
    enough = int(np.searchsorted(np.cumsum(sizes[order]), samples)) + 1
    return np.flatnonzero(np.isin(groups, order[:enough])).astype(np.int64)


def flip_labels(
    labels: NDArray[np.int64], classes: int, rate: float, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Flip each label with probability `rate` to another class, uniformly; return them and the indices flipped.

    A flipped label always differs, so the share of wrong labels tends to `rate`. A pure function of its arguments.
    """
    if not 0 <= rate <= 1:
        raise UserError(f"label noise is {rate:g}: give a share between 0 and 1")
    if classes < 2:
        raise UserError("label noise needs at least two classes; scores cannot be flipped")
    random = np.random.default_rng([seed, 0xF11B])
    flipped = random.random(len(labels)) < rate
    shifts = random.integers(1, classes, len(labels))
    return np.where(flipped, (labels + shifts) % classes, labels), np.flatnonzero(flipped)
