"""Batches: which examples go together, in which order, and how they become tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from stillery.data.schema.examples import Examples
from stillery.data.tokens.encode import Tokens

__all__ = ["Batch", "collate", "in_order", "micro_batches", "padded", "padded_to", "windows"]

Indices = NDArray[np.int64]

POOL_WINDOWS = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """A few examples as tensors of shape (examples, padded length), with their positions and ids.

    The targets of a `generated` one were written by the student.
    """

    index: Indices
    ids: tuple[str, ...]
    inputs: dict[str, torch.Tensor]
    labels: torch.Tensor | None
    generated: bool = False

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device."""
        inputs = {name: tensor.to(device, non_blocking=True) for name, tensor in self.inputs.items()}
        labels = None if self.labels is None else self.labels.to(device, non_blocking=True)
        return replace(self, inputs=inputs, labels=labels)

    def pinned(self) -> Batch:
        """The same batch in memory that a device can fetch from by itself."""
        inputs = {name: tensor.pin_memory() for name, tensor in self.inputs.items()}
        return replace(self, inputs=inputs, labels=None if self.labels is None else self.labels.pin_memory())


def collate(
    examples: Examples,
    tokens: Tokens,
    index: Indices,
    pad_id: int,
    pad_to: int = 8,
    side: Literal["right", "left"] = "right",
) -> Batch:
    """Gather examples into a batch, padded to the longest of them rounded up to a multiple of `pad_to`."""
    real, position = padded(tokens, index, pad_to, side)
    flat: dict[str, tuple[NDArray[Any], int]] = {"input_ids": (tokens.flat, pad_id)}
    if tokens.types is not None:
        flat["token_type_ids"] = (tokens.types, 0)
    inputs = {
        name: torch.from_numpy(np.where(real, source[position].astype(np.int64), pad))
        for name, (source, pad) in flat.items()
    }
    inputs["attention_mask"] = torch.from_numpy(real.astype(np.int64))
    return Batch(
        index=np.asarray(index),
        ids=tuple(examples.ids[row] for row in index),
        inputs=inputs,
        labels=None if examples.labels is None else torch.from_numpy(examples.labels[index]),
    )


def padded(
    tokens: Tokens, index: Indices, pad_to: int, side: Literal["right", "left"]
) -> tuple[NDArray[np.bool_], Indices]:
    """Which places of a batch `[examples, padded length]` hold a token, and where in `tokens.flat` that is, else 0."""
    starts = tokens.offsets[index]
    sizes = tokens.offsets[index + 1] - starts
    longest = int(sizes.max(initial=0))
    width = -(-longest // pad_to) * pad_to
    if tokens.max_length is not None:
        # A model may have no position beyond the limit, so rounding up stops there.
        width = min(width, max(tokens.max_length, longest))
    places = np.arange(width)[None, :]
    first = np.zeros(len(index), dtype=np.int64) if side == "right" else width - sizes
    real = (places >= first[:, None]) & (places < (first + sizes)[:, None])
    return real, np.where(real, starts[:, None] + places - first[:, None], 0)


def padded_to(device: torch.device) -> int:
    """What lengths are rounded up to: a GPU likes multiples of 8, and few shapes; a CPU would compute on nothing."""
    return 1 if device.type == "cpu" else 8


def windows(lengths: NDArray[np.int64], *, seed: int, stage: int, epoch: int, window: int) -> list[Indices]:
    """The order of one epoch: lists of examples of similar length, one per optimiser step, the last maybe shorter.

    A pure function of its arguments. Examples are shuffled, sorted by length inside pools of 50 windows and cut into
    windows, whose order is shuffled again; what does not fill a window is drawn by the first shuffle and comes last.
    """
    random = np.random.default_rng([seed % 2**64, stage, epoch])
    order = random.permutation(len(lengths)).astype(np.int64)
    whole = len(order) - len(order) % window
    cut: list[Indices] = []
    for start in range(0, whole, POOL_WINDOWS * window):
        pool = order[start : min(start + POOL_WINDOWS * window, whole)]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        cut += np.split(pool, len(pool) // window)
    shuffled = [cut[place] for place in random.permutation(len(cut))]
    rest = order[whole:]
    return shuffled + ([rest[np.argsort(lengths[rest], kind="stable")]] if len(rest) else [])


def micro_batches(
    window: int, batch_size: int, process: int = 0, processes: int = 1, partner: Sequence[int] | None = None
) -> list[Indices]:
    """One process's micro-batches of a window of so many examples: each the places of at most `batch_size` of them.

    The window is cut into consecutive pieces of at most `batch_size` examples for each process, and of every piece each
    process gets a share: so what all processes look at together is what one process with larger batches would. Every
    process gets the same number of micro-batches, so that none waits for another; one may be empty where a piece has
    fewer examples than there are processes.

    `partner` says with which other one each example is mixed, and it with that one; the two stay together, which takes
    an even `batch_size` wherever a window is cut.
    """
    first = np.arange(window)
    mates = None if partner is None else np.asarray(partner)
    if mates is not None:
        first = first[first <= mates]
    cuts = []
    for piece in np.array_split(first, -(-window // (batch_size * processes))) if window else []:
        # Strided, because a window is sorted by length and each process should get long and short ones.
        share = piece[process::processes]
        cuts.append(share if mates is None else np.unique(np.concatenate([share, mates[share]])))
    return cuts


def in_order(lengths: NDArray[np.int64], batch_size: int) -> list[Indices]:
    """Batches for evaluation, longest examples first, so that a batch that does not fit memory fails at once."""
    order = np.argsort(-np.asarray(lengths), kind="stable").astype(np.int64)
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
