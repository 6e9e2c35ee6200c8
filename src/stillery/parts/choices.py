"""The words a user chooses parts by, as the parts declare them: read from their source, which loads no tensor code."""

from __future__ import annotations

from stillery.words import words

__all__ = ["DISTANCES", "DIVERGENCES", "PAIRINGS", "REDUCTIONS", "REPRESENTATIONS", "SCHEDULES"]

PAIRINGS = words("pairing")
REPRESENTATIONS = words("representation")
DISTANCES = words("distance")
REDUCTIONS = words("reduction")
DIVERGENCES = words("divergence")
SCHEDULES = words("schedule")
