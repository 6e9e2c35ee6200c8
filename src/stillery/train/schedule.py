"""Learning rate, lengths of stages, and seeds: pure functions of the step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["learning_rate", "stage_lengths"]


def learning_rate(peak: float, step: int, steps: int, warmup: float) -> float:
    """Linear warm-up over the first `warmup` share of the steps, then linear decay; `step` counts from 0.

    The first and the last step both move the weights: the rate is 0 before the first and after the last.

    >>> [round(learning_rate(1.0, s, 10, 0.2), 2) for s in (0, 1, 2, 9)]
    [0.5, 1.0, 1.0, 0.12]
    """
    rising = round(warmup * steps)
    if step < rising:
        return peak * (step + 1) / rising
    return peak * (steps - step) / max(steps - rising, 1)


def stage_lengths(steps: int, shares: Sequence[float]) -> list[int]:
    """Cut a number of steps into stages by their shares: every step is used, every stage gets one if there are enough.

    >>> stage_lengths(12, [5, 1]), stage_lengths(3, [16, 4])
    ([10, 2], [2, 1])
    """
    total, ends = sum(shares), np.cumsum(shares)
    cuts = [round(steps * end / total) for end in ends]
    lengths = [int(cut - before) for cut, before in zip(cuts, [0, *cuts[:-1]], strict=True)]
    for index, length in enumerate(lengths):
        if length < 1:
            lengths[int(np.argmax(lengths))] -= 1
            lengths[index] += 1
    return lengths
