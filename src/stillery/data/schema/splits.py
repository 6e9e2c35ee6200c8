"""Splitting of texts by hashes of their content, so that row order and duplicates do not matter."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.schema.values import holds_lists
from stillery.errors import UserError

__all__ = ["cut", "text_keys"]

CHUNK = 10_000


def text_keys(columns: Sequence[pa.Array], seed: int = 0) -> NDArray[np.uint64]:
    """A seeded 64-bit key per row of one or two columns, the same for texts that only differ in case and whitespace.

    A list of texts counts as its items joined by spaces.
    """
    rows = len(columns[0])
    keys = np.empty(rows, dtype=np.uint64)
    for start in range(0, rows, CHUNK):
        chunks = [_texts(column.slice(start, CHUNK)) for column in columns]
        if len(chunks) == 1:
            chunks.append([""] * len(chunks[0]))
        for row, texts in enumerate(zip(*chunks, strict=True), start=start):
            content = "\0".join([str(seed), *map(_normal, texts)])
            keys[row] = int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest(), "big")
    return keys


def cut(keys: NDArray[np.uint64], shares: Sequence[float], where: str) -> tuple[NDArray[np.int64], ...]:
    """Row indices of each split, ascending; equal keys stay together and every split gets at least one."""
    groups, member, sizes = np.unique(keys, return_inverse=True, return_counts=True)
    if len(groups) < len(shares):
        raise UserError(
            f"{where}: only {len(groups)} different texts, too few for {len(shares)} splits with at least one each; "
            "add rows, or give a folder with train, dev and test files"
        )
    # The keys are hashes, so their order is a shuffle that only depends on the texts and the seed.
    bounds = np.cumsum(shares)[:-1] / sum(shares) * len(keys)
    edges = np.searchsorted(np.cumsum(sizes), bounds + 1e-6, side="right")
    splits = len(shares)
    for split in range(splits - 1):
        lowest = split + 1 if split == 0 else edges[split - 1] + 1
        edges[split] = min(max(edges[split], lowest), len(groups) - (splits - 1 - split))
    split_of_group = np.searchsorted(edges, np.arange(len(groups)), side="right")
    split_of_row = split_of_group[member.reshape(-1)]
    return tuple(np.flatnonzero(split_of_row == split) for split in range(splits))


def _texts(column: pa.Array) -> list[str]:
    found = column.to_pylist()
    return [" ".join(items) for items in found] if holds_lists(column.type) else found


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())
