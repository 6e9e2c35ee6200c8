"""Check of the student's start."""

from __future__ import annotations

from stillery.jobs.config.settings import Distill
from stillery.jobs.diagnosis.evidence import Evidence
from stillery.jobs.diagnosis.findings import Finding, NotExamined, Severity

__all__ = ["worse_start"]

_HIGHER = 0.02
"""Share by which the loss from the run's own start has to be higher than the lowest."""


def worse_start(evidence: Evidence) -> Finding | None:
    """In a short trial another start than the run's own has a lower loss."""
    if not isinstance(evidence.run, Distill):
        return None
    trial = evidence.trial
    if isinstance(trial, str):
        raise NotExamined(trial)
    best = min(trial.losses, key=lambda name: trial.losses[name])
    own, lowest = trial.losses[trial.own], trial.losses[best]
    if own - lowest < _HIGHER * own:
        return None
    others = ", ".join(f"{name} {loss:.4f}" for name, loss in sorted(trial.losses.items(), key=lambda one: one[1]))
    return Finding(
        severity=Severity.HINT,
        sentence=f"The start {trial.own} is worse than {best} at first: loss on held-out training examples after "
        f"{trial.steps} steps from each: {others}. A run of many more steps may end otherwise.",
        option=f"--init {best} (now {trial.own})",
        numbers={"own": trial.own, "best": best, "losses": dict(trial.losses), "steps": trial.steps},
    )
