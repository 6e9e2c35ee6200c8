"""The words a user chooses parts by, kept apart so that reading settings loads no tensor code."""

from __future__ import annotations

__all__ = ["DISTANCES", "DIVERGENCES", "PAIRINGS", "REDUCTIONS", "REPRESENTATIONS", "SCHEDULES"]

PAIRINGS = (
    "forward", "reverse", "all-to-one", "random", "random-each-epoch", "random-together", "uniform", "skip", "last",
    "last-layer", "attend", "combine", "transport",
)  # fmt: skip
REPRESENTATIONS = (
    "cls", "pool", "tokens", "attention", "query-relations", "key-relations", "value-relations", "samples",
    "word-relations",
)  # fmt: skip
DISTANCES = ("mse", "normalised-mse", "cosine", "kl", "contrastive")
REDUCTIONS = ("mean", "batchmean", "rowmean", "sum")
DIVERGENCES = ("kl", "reverse-kl", "js", "tvd", "soft-ce", "mse")
SCHEDULES = ("joint", "sequential")
