"""Split the examples of one optimiser step into micro-batches, each with its share of the step's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from stillery.data.tokens.batches import Batch, micro_batches, padded_to
from stillery.losses import Mixed
from stillery.parts.mix import draw
from stillery.recipe import Clock, Mixing, Rows
from stillery.train.teacher_cache.contents import CachedArray
from stillery.train.trainable import Trainable

__all__ = ["MicroBatch", "split_window"]


@dataclass(frozen=True, kw_only=True, eq=False)
class MicroBatch:
    """A micro-batch of a step: its share of the step's rows, its MixUp parameters, its indices in the training split.

    `cached` are the teacher's outputs on it, if they were read from the teacher cache.
    """

    batch: Batch
    share: Mapping[Rows, float]
    mixed: Mixed | None = None
    places: Tensor
    cached: Mapping[CachedArray, Tensor] | None = None

    def with_cached(self, cached: Mapping[CachedArray, Tensor] | None) -> MicroBatch:
        """Return a copy with outputs read from the teacher cache, if any; the teacher then needs no inputs."""
        if cached is None:
            return self
        return replace(self, batch=replace(self.batch, teacher=None), cached=cached)

    def to(self, device: torch.device) -> MicroBatch:
        """Return a copy on a device; from pinned memory the transfer is asynchronous."""
        cached = None
        if self.cached is not None:
            cached = {array: tensor.to(device, non_blocking=True) for array, tensor in self.cached.items()}
        mixed = self.mixed
        if mixed is not None:
            mixed = replace(mixed, partner=mixed.partner.to(device, non_blocking=True))
        places = self.places.to(device, non_blocking=True)
        return replace(self, batch=self.batch.to(device), mixed=mixed, places=places, cached=cached)

    def pinned(self) -> MicroBatch:
        """Return a copy in pinned memory, for asynchronous transfers to a GPU."""
        cached = None
        if self.cached is not None:
            cached = {array: tensor.pin_memory() for array, tensor in self.cached.items()}
        mixed = self.mixed
        if mixed is not None:
            mixed = replace(mixed, partner=mixed.partner.pin_memory())
        return replace(self, batch=self.batch.pinned(), mixed=mixed, places=self.places.pin_memory(), cached=cached)


def split_window(
    data: Trainable,
    window: np.ndarray,
    batch_size: int,
    clock: Clock,
    mixing: Mixing | None,
    accelerator: Accelerator,
) -> list[MicroBatch]:
    """This process's micro-batches of a window, each with its share of the window's rows and its MixUp parameters.

    Partners are drawn for the whole window, so that they do not depend on its division.
    """
    processes = accelerator.num_processes
    lam, partner = 1.0, None
    if mixing:
        seed = (clock.seed, clock.step)
        lam, partner = draw(len(window), mixing.alpha, mixing.pairing, seed, larger=mixing.larger)
    total: Counter[Rows] = Counter()
    mine = []
    for process in range(processes):
        for places in micro_batches(len(window), batch_size, process, processes, partner):
            chosen, drawn = window[places], None
            if partner is not None:
                drawn = lam, np.searchsorted(places, np.asarray(partner)[places]).tolist()
            rows = data.rows(chosen, drawn)
            total.update(rows)
            if process == accelerator.process_index:
                mine.append((chosen, rows, drawn))
    found = []
    for chosen, rows, drawn in mine:
        # A process left without examples still has to take part in the step: it runs one with weight 0.
        batch = data.batch(chosen if len(chosen) else window[:1], padded_to(accelerator.device))
        share = {name: count / max(total[name], 1) for name, count in rows.items()}
        mixed = None
        if drawn:
            lam, partner = drawn
            mixed = Mixed(lam=lam, partner=torch.tensor(partner or [0]))
        found.append(MicroBatch(batch=batch, share=share, mixed=mixed, places=torch.from_numpy(batch.index)))
    return found
