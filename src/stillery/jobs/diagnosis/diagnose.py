"""`stillery diagnose`: why is my student bad?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stillery.errors import UserError
from stillery.jobs.diagnosis.checks import CHECKS
from stillery.jobs.diagnosis.evidence import DIFFERENCE, Evidence, evidence_of
from stillery.jobs.diagnosis.findings import Diagnosis, Finding, NotExamined, Severity

__all__ = ["diagnose", "weakness"]

NO_TRIAL = "--probe tries other starts for a few steps each"


def diagnose(place: str, *, probe: bool = False, difference: float = DIFFERENCE) -> Diagnosis:
    """Examine a finished run: what its folder holds, and its models on training examples.

    Args:
        place: the run folder.
        probe: whether to try other starts, for a few dozen steps each.
        difference: the difference, in points of the metric, that the scored split should be able to show.
    """
    evidence = evidence_of(place, difference=difference)
    # Not at the top: a look at the recorded numbers alone needs no models.
    from stillery.jobs.diagnosis.starts import try_other_starts
    from stillery.jobs.diagnosis.training_examples import examine

    evidence = replace(
        evidence,
        examined=examine(evidence.folder, evidence.run, evidence.levels.metric),
        trial=try_other_starts(evidence.folder, evidence.run) if probe else NO_TRIAL,
    )
    return _concluded(evidence, place)


def weakness(out: Path) -> str | None:
    """Return a line on why the student of a run that has just finished may be bad; None if nothing was found.

    It reads what was recorded, without loading a model; hints are left out.
    """
    try:
        diagnosis = _concluded(evidence_of(str(out)), str(out))
    except UserError:
        # A run of an earlier version that is read back may lack what is needed, and is none the worse for it.
        return None
    found = [one for one in diagnosis.findings if one.severity > Severity.HINT]
    if not found:
        return None
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"Why the student may be weak{more}: {found[0].sentence} -> stillery diagnose {out}"


def _concluded(evidence: Evidence, place: str) -> Diagnosis:
    """Make all checks, and gather what they find."""
    findings: list[Finding] = []
    not_examined: dict[str, str] = {}
    examined: list[str] = []
    for check in CHECKS:
        name = check.__name__.replace("_", " ")
        try:
            found = check(evidence)
        except NotExamined as reason:
            not_examined[name] = str(reason)
            continue
        examined.append(name)
        if found is not None:
            findings.append(replace(found, check=name))
    findings.sort(key=lambda one: -one.severity)
    return Diagnosis(
        run=str(evidence.folder), scores=_scores(evidence), about=_about(evidence, place), findings=findings,
        not_examined=not_examined, examined=examined,
    )  # fmt: skip


def _scores(evidence: Evidence) -> dict[str, object]:
    found = evidence.levels
    return {
        "task": found.task, "split": found.split, "examples": found.examples, "metric": found.metric,
        "student": found.student, "teacher": found.teacher,
        "difference": None if found.behind is None else found.behind.to_list(),
        "constant": None if found.constant is None else round(found.constant, 4),
        "constant_answer": found.answer or None,
    }  # fmt: skip


def _about(evidence: Evidence, place: str) -> list[str]:
    """Return the scores in words, and whether there is anything to explain."""
    found = evidence.levels
    what = "agreement with the teacher" if found.metric == "agreement" else found.metric
    scores = [f"{found.student:.2f}"]
    if found.teacher is not None:
        scores.append(f"teacher {found.teacher:.2f}")
    if found.constant is not None:
        scores.append(f"{found.answer} {found.constant:.2f}")
    lines = [f"{place}: {found.task}, {found.where}", f"  {what} {', '.join(scores)}"]
    if found.behind is not None:
        lines.append(f"  minus the teacher's: {found.behind}")
        if not found.lags:
            left = abs(min(found.behind.low, 0))
            lines.append(
                f"  It is not distinguished from its teacher: at most {left:.1f} points are left to gain from this one."
            )
    return lines
