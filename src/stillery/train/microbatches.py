"""Cut the examples of one optimiser step into micro-batches that know their share of it."""

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
from stillery.train.data import Trainable
from stillery.train.teacher_cache.contents import What

__all__ = ["Part", "cut_window"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """A micro-batch of a step: its share of the step's rows, how it is mixed, where in the training part it is.

    `kept` is what its teacher showed on it before, where that was read from the store.
    """

    batch: Batch
    share: Mapping[Rows, float]
    mixed: Mixed | None
    places: Tensor
    kept: Mapping[What, Tensor] | None = None

    def to(self, device: torch.device) -> Part:
        """The same on a device, on its way there if the memory is pinned."""
        kept = None
        if self.kept is not None:
            kept = {what: tensor.to(device, non_blocking=True) for what, tensor in self.kept.items()}
        mixed = self.mixed
        if mixed is not None:
            mixed = replace(mixed, partner=mixed.partner.to(device, non_blocking=True))
        places = self.places.to(device, non_blocking=True)
        return replace(self, batch=self.batch.to(device), mixed=mixed, places=places, kept=kept)

    def pinned(self) -> Part:
        """The same in memory that a device can fetch from by itself."""
        kept = None
        if self.kept is not None:
            kept = {what: tensor.pin_memory() for what, tensor in self.kept.items()}
        mixed = self.mixed
        if mixed is not None:
            mixed = replace(mixed, partner=mixed.partner.pin_memory())
        return replace(self, batch=self.batch.pinned(), mixed=mixed, places=self.places.pin_memory(), kept=kept)


def cut_window(
    data: Trainable,
    window: np.ndarray,
    batch_size: int,
    clock: Clock,
    mixing: Mixing | None,
    accelerator: Accelerator,
) -> list[Part]:
    """This process's micro-batches of a window, each with its share of the window's rows and how it is mixed.

    Partners are drawn for the whole window, so that who is mixed with whom does not depend on how it is cut.
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
            cut, drawn = window[places], None
            if partner is not None:
                drawn = lam, np.searchsorted(places, np.asarray(partner)[places]).tolist()
            rows = data.rows(cut, drawn)
            total.update(rows)
            if process == accelerator.process_index:
                mine.append((cut, rows, drawn))
    parts = []
    for cut, rows, drawn in mine:
        # A process left without examples still has to take part in the step: it runs one that does not count.
        batch = data.batch(cut if len(cut) else window[:1], padded_to(accelerator.device))
        share = {name: count / max(total[name], 1) for name, count in rows.items()}
        mixed = None
        if drawn:
            lam, partner = drawn
            mixed = Mixed(lam=lam, partner=torch.tensor(partner or [0]))
        parts.append(Part(batch=batch, share=share, mixed=mixed, places=torch.from_numpy(batch.index)))
    return parts
