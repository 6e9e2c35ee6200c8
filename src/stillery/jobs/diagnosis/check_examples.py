"""Checks of the training split: of its labels and texts, and of what the student has learnt of it."""

from __future__ import annotations

from stillery.jobs.diagnosis.evidence import Evidence
from stillery.jobs.diagnosis.findings import Finding, NotExamined, Severity
from stillery.jobs.diagnosis.levels import Apart
from stillery.jobs.diagnosis.training_examples import Examined

__all__ = ["noisy_labels", "not_learnt", "overfitting", "truncated_texts", "unknown_words"]

_BELOW = 3.0
"""Points by which a teacher's score on its training labels has to be below the one on the scored split."""

_TRUNCATED, _UNKNOWN = 0.1, 0.05
"""Shares of truncated texts and of unknown tokens that are reported."""


def _examined(evidence: Evidence) -> Examined:
    if isinstance(evidence.examined, str):
        raise NotExamined(evidence.examined)
    return evidence.examined


def _scored(evidence: Evidence) -> Examined:
    found = _examined(evidence)
    if not found.examples:
        raise NotExamined(found.why_not)
    return found


def noisy_labels(evidence: Evidence) -> Finding | None:
    """The teacher disagrees with training labels more often than with those of the scored split."""
    found, levels = _scored(evidence), evidence.levels
    if found.teacher is None or found.teacher_interval is None:
        return None
    if levels.teacher is None or levels.teacher_interval is None:
        raise NotExamined("the teacher's interval on the scored split cannot be computed")
    if levels.teacher - found.teacher < _BELOW or found.teacher_interval[1] >= levels.teacher_interval[0]:
        return None
    noise = evidence.run.condition.label_noise
    asked = "" if noise is None else f"; the run itself flipped labels (--label-noise {noise:g})"
    return Finding(
        severity=Severity.COSTLY,
        sentence=f"The teacher disagrees with the training labels more than with others: {levels.metric} "
        f"{found.teacher:.2f} {_interval(found.teacher_interval)} on {found.examples} training examples, "
        f"{levels.teacher:.2f} {_interval(levels.teacher_interval)} on {levels.where}{asked}.",
        option="clean the training labels, or let the teacher count for more: a lower --hard-weight",
        numbers={"train": found.teacher, "train_interval": list(found.teacher_interval), "scored": levels.teacher,
                 "scored_interval": list(levels.teacher_interval), "examples": found.examples, "label_noise": noise},
    )  # fmt: skip


def not_learnt(evidence: Evidence) -> Finding | None:
    """The student is below its teacher on training examples too."""
    gaps = _gaps(evidence)
    if gaps is None:
        return None
    found, there, here = gaps
    if there.high >= 0 or there.value > here.value / 2:
        return None
    training, levels = evidence.run.training, evidence.levels
    return Finding(
        severity=Severity.COSTLY,
        sentence=f"The student has not learnt its training examples either: {levels.metric} {found.student:.2f} on "
        f"{found.examples} of them, where the teacher has {found.teacher:.2f}; difference {there}.",
        option=f"{evidence.longer()}, another --lr (now {training.lr:g}), or a larger student",
        numbers={"student": found.student, "teacher": found.teacher, "difference": there.to_list(),
                 "examples": found.examples, "steps": evidence.steps},
    )  # fmt: skip


def overfitting(evidence: Evidence) -> Finding | None:
    """The student is level with its teacher on training examples, and below it on others."""
    gaps = _gaps(evidence)
    if gaps is None:
        return None
    found, there, here = gaps
    if there.value <= here.value / 2 or found.student is None:
        return None
    levels = evidence.levels
    return Finding(
        severity=Severity.COSTLY,
        sentence=f"Most of what the student lacks it lacks on new examples: {levels.metric} {found.student:.2f} on "
        f"{found.examples} training examples (teacher {found.teacher:.2f}), {levels.student:.2f} on {levels.where} "
        f"(teacher {levels.teacher:.2f}).",
        option="more training texts, also unlabelled ones (--unlabelled with kd); a lower --hard-weight, or --method "
        "cr-ild",
        numbers={"train": found.student, "train_difference": there.to_list(), "scored": levels.student,
                 "scored_difference": here.to_list(), "examples": found.examples},
    )  # fmt: skip


def _gaps(evidence: Evidence) -> tuple[Examined, Apart, Apart] | None:
    """Return what was measured on training examples, and the student's difference from the teacher there and here."""
    if not evidence.levels.lags or evidence.levels.behind is None:
        return None
    found = _scored(evidence)
    return None if found.behind is None else (found, found.behind, evidence.levels.behind)


def truncated_texts(evidence: Evidence) -> Finding | None:
    """Many training texts are truncated."""
    if not evidence.levels.student_is_weak:
        return None
    found = _examined(evidence)
    share = found.truncated / found.of
    if share < _TRUNCATED:
        return None
    length = evidence.run.data.max_length
    return Finding(
        severity=Severity.HINT,
        sentence=f"{share:.1%} of {found.of:,} training texts are longer than {length} tokens; what is beyond is lost.",
        option=f"a larger --max-length (now {length}), as far as the models have positions, for the teacher too",
        numbers={"truncated": found.truncated, "of": found.of, "share": round(share, 4), "max_length": length},
    )


def unknown_words(evidence: Evidence) -> Finding | None:
    """The student's tokenizer does not know many of the training texts' words."""
    found = _examined(evidence)
    if found.unknown < _UNKNOWN:
        return None
    return Finding(
        severity=Severity.COSTLY,
        sentence=f"{found.unknown:.1%} of the tokens of the training texts are words or signs that the tokenizer does "
        "not know.",
        option="a teacher and student with a tokenizer for this language or script",
        numbers={"share": round(found.unknown, 4), "texts": found.of},
    )


def _interval(bounds: tuple[float, float]) -> str:
    return f"({bounds[0]:.2f} to {bounds[1]:.2f})"
