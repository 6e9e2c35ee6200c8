"""Checks of what the guards measured while the run was trained: shares of the gradient, ranks of projections."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from stillery.jobs.diagnosis.evidence import Evidence, StageLog
from stillery.jobs.diagnosis.findings import Finding, NotExamined, Severity
from stillery.train.guard_measures import PREDICTIONS, ProjectionRanks, with_layers
from stillery.train.guards import SHARE, lost_rank

__all__ = ["dominating_term", "projection_rank"]


def dominating_term(evidence: Evidence) -> Finding | None:
    """One loss term takes nearly all of the gradient."""
    found = [one for stage in evidence.stages if (one := _dominating(evidence, stage)) is not None]
    if found:
        return max(found, key=lambda one: one.numbers["share"])
    predicting = [stage for stage in evidence.stages if set(PREDICTIONS) & set(stage.terms) and len(stage.terms) > 1]
    if predicting and not any(event["shares"] for stage in predicting for event in stage.guards):
        warned = evidence.warnings("gradient share")
        if warned:
            return _warned(warned[0], share=warned[0].get("share"))
        raise NotExamined(_unrecorded(evidence))
    return None


def _dominating(evidence: Evidence, stage: StageLog) -> Finding | None:
    shares = [event["shares"] for event in stage.guards if event["shares"]]
    if not shares:
        return None
    mean = {name: fmean(one.get(name, 0.0) for one in shares) for name in shares[-1]}
    names, share = max(with_layers(mean, SHARE).items(), key=lambda item: item[1])
    # A student that predicts what its teacher predicts has only the labels left to learn, and the other way round.
    expected = set(names) <= set(PREDICTIONS) and not evidence.levels.student_is_weak
    if share <= SHARE or expected:
        return None
    heaviest = max(names, key=mean.__getitem__)
    weight = stage.guards[-1]["weights"][heaviest]
    about, others = " + ".join(names), {name: value for name, value in mean.items() if name not in names}
    rest = ", ".join(f"{name} {value:.1%}" for name, value in others.items())
    checks = f"{len(shares)} {'check' if len(shares) == 1 else 'checks'}"
    return Finding(
        severity=Severity.COSTLY,
        sentence=f"The loss {'term' if len(names) == 1 else 'terms'} {about} took {share:.1%} of the gradient in stage "
        f"{stage.name} (mean of {checks}); the rest: {rest}.",
        option=evidence.advice.weight(stage.number, heaviest, weight),
        numbers={"stage": stage.name, "term": about, "share": round(share, 4), "checks": len(shares), "weight": weight,
                 "shares": {name: round(value, 4) for name, value in mean.items()}},
    )  # fmt: skip


def projection_rank(evidence: Evidence) -> Finding | None:
    """A trained projection turns all states to nearly one direction."""
    found = [one for stage in evidence.stages if (one := _collapsed(evidence, stage)) is not None]
    if found:
        return min(found, key=lambda one: one.numbers["rank"])
    if any(event["projections"] for stage in evidence.stages for event in stage.guards):
        return None
    warned = evidence.warnings("projection rank")
    if warned:
        return _warned(warned[0], rank=warned[0].get("rank"))
    if evidence.stages and not any(stage.guards for stage in evidence.stages) and not evidence.run.training.guards:
        raise NotExamined(_unrecorded(evidence))
    return None


def _collapsed(evidence: Evidence, stage: StageLog) -> Finding | None:
    best: dict[tuple[str, int, str], float] = {}
    last: dict[tuple[str, int, str], tuple[ProjectionRanks, float, bool]] = {}
    for event in stage.guards:
        for values in event["projections"]:
            one = ProjectionRanks(**values)
            key = (one.match, one.pair, one.side)
            last[key] = (one, *lost_rank(one, best.get(key, 1.0)))
            best[key] = max(one.after, best.get(key, 1.0))
    lost = [(one, full) for one, full, gone in last.values() if gone]
    if not lost:
        return None
    one, full = min(lost, key=lambda pair: (pair[0].after - 1) / (pair[1] - 1))
    weight = stage.guards[-1]["weights"].get(one.match, 0.0)
    return Finding(
        severity=Severity.COSTLY,
        sentence=f"{len(lost)} of {len(last)} projections have collapsed by the end of stage {stage.name}: that of "
        f"{one.match} turns the {one.side}'s states of pair {one.pair + 1} to nearly one direction (effective rank "
        f"{one.after:.3f} of {full:.2f}).",
        option=evidence.advice.projection(stage.number, one.match, weight),
        numbers={"stage": stage.name, "match": one.match, "pair": one.pair + 1, "side": one.side,
                 "rank": round(one.after, 4), "full_rank": round(full, 4), "collapsed": len(lost), "of": len(last)},
    )  # fmt: skip


def _warned(warning: Mapping[str, Any], **numbers: Any) -> Finding:
    """A finding from a guard's warning, for a run by a version that kept no measurements."""
    line, _, option = str(warning["message"]).removeprefix("warning: ").rpartition(": ")
    return Finding(severity=Severity.COSTLY, sentence=f"While it was trained, {line}.", option=option, numbers=numbers)


def _unrecorded(evidence: Evidence) -> str:
    if not evidence.run.training.guards:
        return "the run was trained without guards (--no-guards), which measure it"
    return "the run's log has no measurements of guards"
