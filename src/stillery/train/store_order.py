"""The order in which the teacher store is filled, and where in it each example is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK", "FillOrder", "Indices"]

Indices = NDArray[np.int64]

BLOCK = 512
"""Examples of a block; a filling that is killed goes on at the block it was at."""


class FillOrder:
    """Longest examples first, in blocks; a batch of a block holds at most so many tokens, padding included."""

    def __init__(self, lengths: Indices, tokens: int) -> None:
        self.lengths, self.tokens = lengths, tokens
        self.examples = np.argsort(-lengths, kind="stable").astype(np.int64)
        self.rank = np.empty_like(self.examples)
        self.rank[self.examples] = np.arange(len(lengths))
        ends = np.cumsum(lengths[self.examples])
        self.starts: Indices = (ends - lengths[self.examples])[self.rank]
        self.example_ends: Indices = np.minimum(np.arange(BLOCK, len(lengths) + BLOCK, BLOCK), len(lengths))
        self.token_ends: Indices = ends[self.example_ends - 1]

    def block(self, number: int) -> Indices:
        """The examples of a block."""
        return self.examples[number * BLOCK : (number + 1) * BLOCK]

    def batches(self, number: int) -> list[Indices]:
        """The batches of a block."""
        left, cut = self.block(number), []
        while len(left):
            size = max(1, self.tokens // max(1, int(self.lengths[left[0]])))
            cut.append(left[:size])
            left = left[size:]
        return cut
