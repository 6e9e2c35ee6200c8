"""The reading under the table of layer strategies: whether it matters which layers are matched."""

from __future__ import annotations

from stillery.study.compare import LEAST_SEEDS
from stillery.study.sentences import count_seeds, listed, p_text
from stillery.study.spread import Spread, smallest_p
from stillery.study.statistics import Conclusions

__all__ = ["read_spread", "read_spreads"]


def read_spreads(found: Conclusions, *, margin: float | None = None) -> str:
    """What the spreads over layer strategies say, task by task.

    With a margin, in points, it is said where the choice of layers is shown to be worth no more than that.
    """
    lines = [read_spread(one, level=found.level, margin=margin) for one in found.spreads]
    return " ".join(lines) if lines else "No task has scores of two strategies on the same seed."


def read_spread(one: Spread, *, level: float, margin: float | None = None) -> str:
    """What the spread on one task says of the claim that it does not matter which layers are matched."""
    lines = [
        f"{one.task}: {len(one.strategies)} strategies lie {one.value:.1f} points apart, {one.highest} highest and "
        f"{one.lowest} lowest."
    ]
    if one.missing:
        lines.append(f"Without {listed(one.missing)}, of which there is no score.")
    if one.noise is None:
        lines.append("With one seed in common this may all be noise of the seed; nothing follows of the strategies.")
        return " ".join(lines)
    lines.append(f"Seeds alone would give {one.noise.mean:.1f} on average, and hardly more than {one.noise.high:.1f}.")
    p = one.noise.p if one.noise.adjusted is None else one.noise.adjusted
    alone = smallest_p(len(one.strategies), len(one.seeds))
    if len(one.seeds) < LEAST_SEEDS or alone > 1 - level:
        lines.append(f"{count_seeds(len(one.seeds)).capitalize()} are too few to tell the one from the other.")
    elif p <= 1 - level:
        by = "" if one.low is None else f", by {one.low:.1f} to {one.high:.1f} points"
        lines.append(f"So it matters here which layers are matched{by} ({p_text(p)}).")
    else:
        lines.append(f"So the spread is not distinguished from that of the seeds ({p_text(p)}).")
        if one.high is not None:
            lines.append(f"That does not show that it is 0: up to {one.high:.1f} points go with these scores.")
    if one.high is not None and margin is not None and len(one.seeds) >= LEAST_SEEDS:
        told = "is shown" if one.high <= margin else "is not shown"
        lines.append(f"That the choice of layers is worth {margin:g} points at most {told}.")
    return " ".join(lines)
