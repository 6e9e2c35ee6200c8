"""The order in which the teacher cache is filled, and the position of each example in it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["FillOrder", "Indices"]

Indices = NDArray[np.int64]


class FillOrder:
    """Longest examples first, in blocks of `size`; a batch within a block has at most `tokens` tokens, with padding.

    Killed filling resumes at its last block. Where lengths are rounded up to a multiple of `pad_to`, batch sizes are
    powers of two: batch shapes repeat, and a GPU can replay them.
    """

    def __init__(self, lengths: Indices, tokens: int, size: int, pad_to: int = 1) -> None:
        self.lengths, self.tokens, self.size, self.pad_to = lengths, tokens, size, pad_to
        self.examples = np.argsort(-lengths, kind="stable").astype(np.int64)
        self.rank = np.empty_like(self.examples)
        self.rank[self.examples] = np.arange(len(lengths))
        ends = np.cumsum(lengths[self.examples])
        self.starts: Indices = (ends - lengths[self.examples])[self.rank]
        self.example_ends: Indices = np.minimum(np.arange(size, len(lengths) + size, size), len(lengths))
        self.token_ends: Indices = ends[self.example_ends - 1]

    @property
    def rule(self) -> list[int]:
        """The parameters that determine, with the lengths, which examples share a batch."""
        return [self.size, self.tokens, *([self.pad_to] if self.pad_to > 1 else [])]

    def block(self, number: int) -> Indices:
        """The examples of a block."""
        return self.examples[number * self.size : (number + 1) * self.size]

    def batches(self, number: int) -> list[Indices]:
        """The batches of a block."""
        left, found = self.block(number), []
        while len(left):
            longest = -(-max(1, int(self.lengths[left[0]])) // self.pad_to) * self.pad_to
            size = max(1, self.tokens // longest)
            if self.pad_to > 1:
                # A power of two, so that batches fill a block evenly.
                size = 1 << size.bit_length() - 1
            found.append(left[:size])
            left = left[size:]
        return found
