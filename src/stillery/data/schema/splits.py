"""Cutting a set of texts into parts by what the texts say, so that row order and repetition do not matter."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.errors import UserError

__all__ = ["cut", "text_keys"]

CHUNK = 10_000


def text_keys(texts: pa.Array, pairs: pa.Array | None, seed: int = 0) -> NDArray[np.uint64]:
    """A seeded 64-bit key per example, the same for texts that differ only in case and whitespace."""
    keys = np.empty(len(texts), dtype=np.uint64)
    for start in range(0, len(texts), CHUNK):
        first = texts.slice(start, CHUNK).to_pylist()
        second = pairs.slice(start, CHUNK).to_pylist() if pairs is not None else [""] * len(first)
        for row, (one, other) in enumerate(zip(first, second, strict=True), start=start):
            content = f"{seed}\0{_normal(one)}\0{_normal(other)}"
            keys[row] = int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest(), "big")
    return keys


def cut(keys: NDArray[np.uint64], shares: Sequence[float], where: str) -> tuple[NDArray[np.int64], ...]:
    """Row indices of each part, ascending; equal keys stay together and every part gets at least one."""
    groups, member, sizes = np.unique(keys, return_inverse=True, return_counts=True)
    if len(groups) < len(shares):
        raise UserError(
            f"{where}: only {len(groups)} different texts, too few for {len(shares)} parts with at least one each; "
            "add rows, or give a folder with train, dev and test files"
        )
    # The keys are hashes, so their order is a shuffle that depends on the texts and the seed alone.
    bounds = np.cumsum(shares)[:-1] / sum(shares) * len(keys)
    edges = np.searchsorted(np.cumsum(sizes), bounds + 1e-6, side="right")
    parts = len(shares)
    for part in range(parts - 1):
        lowest = part + 1 if part == 0 else edges[part - 1] + 1
        edges[part] = min(max(edges[part], lowest), len(groups) - (parts - 1 - part))
    part_of_group = np.searchsorted(edges, np.arange(len(groups)), side="right")
    part_of_row = part_of_group[member.reshape(-1)]
    return tuple(np.flatnonzero(part_of_row == part) for part in range(parts))


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())
