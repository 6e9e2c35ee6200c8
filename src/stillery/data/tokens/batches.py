"""Batches of examples, and their composition and order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Batch", "Indices", "in_order", "micro_batches", "padded_to", "windows"]

Indices = NDArray[np.int64]

POOL_WINDOWS = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """A few examples as tensors of shape (examples, padded length), with their positions and ids.

    Labels of examples are in `labels`, labels of tokens in `inputs`. The targets of a `generated` batch were generated
    by the student. `teacher` has the inputs of the same examples for a teacher with a tokenizer of its own.
    """

    index: Indices
    ids: tuple[str, ...]
    inputs: dict[str, torch.Tensor]
    labels: torch.Tensor | None
    generated: bool = False
    teacher: dict[str, torch.Tensor] | None = None

    @property
    def teacher_inputs(self) -> dict[str, torch.Tensor]:
        """The inputs for the teacher."""
        return self.inputs if self.teacher is None else self.teacher

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device."""
        return self.mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> Batch:
        """The same batch in pinned memory, for asynchronous copies to a device."""
        return self.mapped(torch.Tensor.pin_memory)

    def mapped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        """The same batch with a function applied to every tensor."""
        inputs = {name: change(tensor) for name, tensor in self.inputs.items()}
        teacher = None if self.teacher is None else {name: change(tensor) for name, tensor in self.teacher.items()}
        return replace(
            self, inputs=inputs, teacher=teacher, labels=None if self.labels is None else change(self.labels)
        )


def padded_to(device: torch.device) -> int:
    """The multiple that lengths are padded to: 8 on a GPU, for efficiency and fewer shapes; 1 on a CPU."""
    return 1 if device.type == "cpu" else 8


def windows(lengths: NDArray[np.int64], *, seed: int, stage: int, epoch: int, window: int) -> list[Indices]:
    """Arrange one epoch into lists of examples of similar length, one per optimiser step; the last may be shorter.

    A pure function of its arguments. Examples are shuffled, sorted by length inside pools of 50 windows and cut into
    windows, whose order is shuffled again; the remainder that fills no window is chosen by the first shuffle and last.
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
    """One process's micro-batches of a window of examples: the positions of at most `batch_size` examples each.

    The window is cut into consecutive pieces of at most `batch_size` examples per process, and each process gets a
    share of every piece: together, all processes see the same examples as one process with larger batches. Every
    process gets the same number of micro-batches, so that none waits for another; one may be empty if a piece has fewer
    examples than there are processes.

    `partner` has the example that each one is mixed with, symmetrically; the two stay together, which requires an even
    `batch_size` if a window is cut.
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
    """Batches for evaluation, longest examples first, so that a lack of memory shows at once."""
    order = np.argsort(-np.asarray(lengths), kind="stable").astype(np.int64)
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
