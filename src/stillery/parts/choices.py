"""The names of the parts that the command line offers, read from their source without importing torch."""

from __future__ import annotations

from stillery.words import words

__all__ = ["DISTANCES", "DIVERGENCES", "PAIRINGS", "REDUCTIONS", "REPRESENTATIONS", "SCHEDULES"]

PAIRINGS = words("pairing")
REPRESENTATIONS = words("representation")
DISTANCES = words("distance")
REDUCTIONS = words("reduction")
DIVERGENCES = words("divergence")
SCHEDULES = words("schedule")
