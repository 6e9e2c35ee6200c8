"""Learning-rate schedule, number of steps and lengths of stages, as pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["MOST_OF_A_RUN", "learning_rate", "run_steps", "stage_lengths"]


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


MOST_OF_A_RUN = 0.75
"""The largest share of a run that a stage with a minimum number of steps may take."""


def run_steps(epochs: int, examples: int, window: int, most: int | None = None) -> int:
    """Optimiser steps of a run: `epochs` over the examples with `window` examples per step, and at most `most`."""
    steps = epochs * -(-examples // window)
    return min(steps, most or steps)


def stage_lengths(steps: int, shares: Sequence[float], least: Sequence[int] | None = None) -> list[int]:
    """Divide a number of steps into stages by their shares; every stage gets one step if there are enough.

    A stage gets at least its `least` steps, limited to `MOST_OF_A_RUN` in a short run.

    >>> stage_lengths(12, [5, 1]), stage_lengths(3, [16, 4])
    ([10, 2], [2, 1])
    >>> [stage_lengths(steps, [5, 1], [0, 1000]) for steps in (9600, 2400, 300)]
    [[8000, 1600], [1400, 1000], [75, 225]]
    """
    lengths = _by_share(steps, shares)
    wanted = [min(most, int(MOST_OF_A_RUN * steps)) for most in least or ()]
    short = [index for index, most in enumerate(wanted) if lengths[index] < most]
    if not short or len(short) == len(shares):
        return lengths
    stage = short[-1]
    others = _by_share(steps - wanted[stage], [share for index, share in enumerate(shares) if index != stage])
    return [*others[:stage], wanted[stage], *others[stage:]]


def _by_share(steps: int, shares: Sequence[float]) -> list[int]:
    total, ends = sum(shares), np.cumsum(shares)
    cuts = [round(steps * end / total) for end in ends]
    lengths = [int(cut - before) for cut, before in zip(cuts, [0, *cuts[:-1]], strict=True)]
    for index, length in enumerate(lengths):
        if length < 1:
            lengths[int(np.argmax(lengths))] -= 1
            lengths[index] += 1
    return lengths
