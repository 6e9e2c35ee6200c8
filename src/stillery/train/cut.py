"""Cut the examples of one optimiser step into micro-batches that know their share of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator

from stillery.data.batches import Batch, collate, micro_batches
from stillery.data.examples import Examples
from stillery.data.tokens import Tokens
from stillery.parts.mix import draw
from stillery.recipe import Clock, Mixing, Rows
from stillery.terms import Mixed

__all__ = ["TrainingData", "cut_window"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingData:
    """Tokenised training examples and how to pad them."""

    examples: Examples
    tokens: Tokens
    pad_id: int


def cut_window(
    data: TrainingData,
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
            rows = _rows(data.tokens.lengths[cut], drawn)
            total.update(rows)
            if process == accelerator.process_index:
                mine.append((cut, rows, drawn))
    parts = []
    for cut, rows, drawn in mine:
        # A process left without examples still has to take part in the step: it runs one that does not count.
        index = cut if len(cut) else window[:1]
        batch = collate(data.examples, data.tokens, index, data.pad_id).to(accelerator.device)
        share = {name: count / max(total[name], 1) for name, count in rows.items()}
        mixed = None
        if drawn:
            lam, partner = drawn
            mixed = Mixed(lam=lam, partner=torch.tensor(partner or [0], device=accelerator.device))
        parts.append((batch, share, mixed))
    return parts


def _rows(lengths: np.ndarray, drawn: tuple[float, list[int]] | None) -> dict[Rows, int]:
    """How many rows of each kind examples of these lengths have, plain and mixed."""
    rows: dict[Rows, int] = {
        "examples": len(lengths), "tokens": int(lengths.sum()), "pairs": int((lengths**2).sum())
    }  # fmt: skip
    if drawn:
        lam, partner = drawn
        others = lengths[partner] if len(lengths) else lengths
        mixed = lengths if lam == 1 else others if lam == 0 else np.maximum(lengths, others)
        rows |= {"mixed tokens": int(mixed.sum()), "mixed pairs": int((mixed**2).sum())}
    return rows
