"""Cut the examples of one optimiser step into micro-batches that know their share of it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from accelerate import Accelerator

from stillery.data.batches import Batch, micro_batches
from stillery.parts.mix import draw
from stillery.recipe import Clock, Mixing, Rows
from stillery.terms import Mixed
from stillery.train.data import Trainable

__all__ = ["cut_window"]


def cut_window(
    data: Trainable,
    window: np.ndarray,
    batch_size: int,
    clock: Clock,
    mixing: Mixing | None,
    accelerator: Accelerator,
) -> list[tuple[Batch, dict[Rows, float], Mixed | None]]:
    """This process's micro-batches of a window, each with its share of the window's rows and how it is mixed."""
    total: Counter[Rows] = Counter()
    mine = []
    for process in range(accelerator.num_processes):
        cuts = micro_batches(window, batch_size, process, accelerator.num_processes)
        for number, cut in enumerate(cuts):
            seed = (clock.seed, clock.step, number, process)
            drawn = draw(len(cut), mixing.alpha, mixing.pairing, seed, larger=mixing.larger) if mixing else None
            rows = data.rows(cut, drawn)
            total.update(rows)
            if process == accelerator.process_index:
                mine.append((cut, rows, drawn))
    parts = []
    for cut, rows, drawn in mine:
        # A process left without examples still has to take part in the step: it runs one that does not count.
        batch = data.batch(cut if len(cut) else window[:1]).to(accelerator.device)
        share = {name: count / max(total[name], 1) for name, count in rows.items()}
        mixed = None
        if drawn:
            lam, partner = drawn
            mixed = Mixed(lam=lam, partner=torch.tensor(partner or [0], device=accelerator.device))
        parts.append((batch, share, mixed))
    return parts
