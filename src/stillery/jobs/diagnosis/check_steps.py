"""Checks of the course of training: steps of stages, losses, and scores on the split that selects weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from stillery.jobs.config.settings import Distill
from stillery.jobs.diagnosis.evidence import Evidence, StageLog
from stillery.jobs.diagnosis.findings import Finding, NotExamined, Severity
from stillery.recipe import LEAST_STEPS
from stillery.train.guard_measures import PREDICTIONS

__all__ = ["exploded_loss", "few_prediction_steps", "flat_loss", "still_rising"]

_FALLEN = 0.97
"""A loss above this share of its start has not fallen."""

_RISE = 0.5
"""Least gain at the last scoring, in points, that counts as still rising."""


def exploded_loss(evidence: Evidence) -> Finding | None:
    """The loss rose far above its start and stayed there."""
    warned = evidence.warnings("explosion")
    if not warned or not evidence.levels.student_is_weak:
        return None
    one = warned[0]
    return Finding(
        severity=Severity.FATAL,
        sentence=f"The loss exploded in stage {one['stage']}: from {one['start']:.3g} at its start to "
        f"{one['loss']:.3g} around step {one['step']}.",
        option=evidence.advice.explosion(one["lr"]),
        numbers={name: one[name] for name in ("stage", "start", "loss", "step", "lr")},
    )


def few_prediction_steps(evidence: Evidence) -> Finding | None:
    """A method of several stages has too few steps left for predictions."""
    stages = evidence.stages
    if len(stages) < 2 or not evidence.levels.student_is_weak:
        return None
    predicting = [stage for stage in stages if set(PREDICTIONS) & set(stage.terms)]
    steps, whole = sum(stage.steps for stage in predicting), sum(stage.steps for stage in stages)
    if not predicting or steps >= LEAST_STEPS:
        return None
    least = evidence.run.method.method_options().get("least_steps") if isinstance(evidence.run, Distill) else None
    lowered = isinstance(least, int) and least < LEAST_STEPS and steps < whole / 2
    times = LEAST_STEPS / max(steps, 1)
    return Finding(
        severity=Severity.COSTLY,
        sentence=f"Only {steps} of {whole} steps match predictions (stage {predicting[-1].name}); a run that is long "
        f"enough gives them {LEAST_STEPS:,}.",
        option=f"--option least_steps={LEAST_STEPS} (now {least}), or {evidence.longer(times)}"
        if lowered
        else f"{evidence.longer(times)}, or a method of one stage such as kd",
        numbers={"steps": steps, "of": whole, "least": LEAST_STEPS},
    )


def flat_loss(evidence: Evidence) -> Finding | None:
    """The losses of the predictions have not fallen."""
    if not evidence.levels.student_is_weak:
        return None
    stages = [stage for stage in evidence.stages if set(PREDICTIONS) & set(stage.terms)]
    if not stages:
        raise NotExamined("the log has no losses")
    falls = {name: _course(stages[-1], name) for name in PREDICTIONS if name in stages[-1].terms}
    if any(start <= 0 or end < _FALLEN * start for start, end in falls.values()):
        return None
    said = " and ".join(f"{name} from {start:.4g} to {end:.4g}" for name, (start, end) in falls.items())
    training = evidence.run.training
    return Finding(
        severity=Severity.COSTLY,
        sentence=f"The loss did not fall in stage {stages[-1].name} ({stages[-1].steps} steps): {said}.",
        option=f"another --lr (now {training.lr:g}), or {evidence.longer()}",
        numbers={"stage": stages[-1].name, "steps": stages[-1].steps,
                 **{name: [round(start, 5), round(end, 5)] for name, (start, end) in falls.items()}},
    )  # fmt: skip


def _course(stage: StageLog, name: str) -> tuple[float, float]:
    """Return a term at the start and at the end of a stage: means of the first and the last fifth of its log."""
    values = [event["terms"][name] for event in stage.losses if name in event["terms"]]
    few = math.ceil(len(values) / 5)
    return fmean(values[:few]), fmean(values[-few:])


def still_rising(evidence: Evidence) -> Finding | None:
    """The last scoring while training was the best, by a margin."""
    if not evidence.levels.student_is_weak:
        return None
    scores = _scores(evidence.log)
    if len(scores) < 2:
        raise NotExamined("the model was scored once while it was trained")
    name, values = scores[-1][0], [value for _, value in scores]
    if values[-1] - max(values[:-1]) < _RISE:
        return None
    shown = ", ".join(f"{value:.2f}" for value in values[-4:])
    split = evidence.metrics.get("training", {}).get("selected_on", "dev")
    return Finding(
        severity=Severity.HINT,
        sentence=f"The {split} {name} was still rising when training ended: {shown} at the last "
        f"{min(len(values), 4)} scorings; the learning rate has run out by then, so the run cannot simply continue.",
        option=f"train anew with {evidence.longer()}",
        numbers={"metric": name, "scores": values, "rise": round(values[-1] - max(values[:-1]), 4)},
    )


def _scores(log: Sequence[Mapping[str, Any]]) -> list[tuple[str, float]]:
    """Return the main metric of each scoring while training."""
    return [next(iter(event["metrics"].items())) for event in log if event.get("event") == "dev" and event["metrics"]]
