"""Checks of the recorded predictions of a student and its teacher."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from stillery.evaluation.recorded import Recorded
from stillery.jobs.config.settings import Distill
from stillery.jobs.diagnosis.evidence import Evidence
from stillery.jobs.diagnosis.findings import Finding, NotExamined, Severity

__all__ = ["one_answer", "small_split", "weak_teacher"]

_SAME = 0.1
"""Share of the examples with another gold answer that has to get another answer too."""

_LEAST = 5
"""Least number of examples with another gold answer: with fewer, giving the same answer to all may be right."""

_HARDLY = 0.05
"""Least spread of predicted scores, as a share of the labels' spread."""


def weak_teacher(evidence: Evidence) -> Finding | None:
    """The teacher is hardly better than the best constant answer."""
    if not isinstance(evidence.run, Distill):
        return None
    found = evidence.levels
    if found.teacher is None:
        raise NotExamined("the scored examples have no labels")
    if found.constant is None or found.of_teacher is None:
        raise NotExamined(f"{found.metric} does not follow from the recorded predictions")
    if not found.gains_little(found.teacher) or found.teacher_gain is None:
        return None
    level = found.teacher_gain.low <= 0
    told = "is hardly above"
    if level:
        told = "is worse than" if found.teacher_gain.high < 0 else "is not distinguished from"
    return Finding(
        severity=Severity.FATAL if level else Severity.COSTLY,
        sentence=f"The teacher {told} giving every example the same answer: {found.metric} {found.teacher:.2f}, with "
        f"{found.answer} {found.constant:.2f}; difference {found.teacher_gain} on {found.where}.",
        option="check the teacher's labels and train it longer, or take another one (--teacher)",
        numbers={
            "metric": found.metric, "teacher": found.teacher, "constant": found.constant, "answer": found.answer,
            "difference": found.teacher_gain.to_list(),
        },
    )  # fmt: skip


def one_answer(evidence: Evidence) -> Finding | None:
    """The model gives nearly all examples one answer, which few of them should get."""
    recorded = evidence.recorded
    if pa.types.is_floating(recorded.given.type):
        return _one_score(evidence, recorded)
    given = _answers(recorded, recorded.given)
    right = recorded.right if recorded.right is not None else recorded.teacher
    if right is None:
        raise NotExamined("the scored examples have no labels")
    gold = _answers(recorded, right)
    answer, times = Counter(given).most_common(1)[0]
    share, expected = times / len(given), gold.count(answer) / len(gold)
    others = round(len(gold) * (1 - expected))
    if others < _LEAST or 1 - share >= _SAME * (1 - expected):
        return None
    what = "words" if recorded.does == "tags words" else "examples"
    said = f"{answer!r}" if recorded.does == "generates text" else str(answer)
    shown = said if len(said) <= 40 else f"{said[:37]}..."
    rule = f"that is {expected:.1%} of the labels"
    if recorded.right is None:
        rule = f"its teacher gives it to {expected:.1%}"
    return Finding(
        severity=Severity.FATAL if share == 1 else Severity.COSTLY,
        sentence=f"The model gives {share:.1%} of {len(given):,} {what} the answer {shown}; {rule}.",
        option=evidence.advice.one_answer(),
        numbers={"answer": answer, "share": round(share, 4), "expected": round(expected, 4), "of": len(given)},
    )


def _one_score(evidence: Evidence, recorded: Recorded) -> Finding | None:
    right = recorded.right if recorded.right is not None else recorded.teacher
    if right is None:
        raise NotExamined("the scored examples have no labels")
    given, gold = (column.to_numpy(zero_copy_only=False) for column in (recorded.given, right))
    spread, expected = float(np.std(given)), float(np.std(gold))
    if spread >= _HARDLY * expected:
        return None
    return Finding(
        severity=Severity.FATAL,
        sentence=f"The model gives all {len(given):,} examples nearly the same score, {np.mean(given):.3g}: its scores "
        f"have a standard deviation of {spread:.2g}, the labels one of {expected:.2g}.",
        option=evidence.advice.one_answer(),
        numbers={"score": float(np.mean(given)), "deviation": spread, "expected": expected, "of": len(given)},
    )


def _answers(recorded: Recorded, column: pa.Array) -> list[Any]:
    """Return one comparable answer for each example; of taggers for each word."""
    if recorded.does == "tags words":
        return list(column.flatten().to_pylist())
    values = column.to_pylist()
    if recorded.does == "generates text":
        return [text[0] if isinstance(text, list) else text for text in values]
    return [", ".join(sorted(names)) or "no label" if isinstance(names, list) else names for names in values]


def small_split(evidence: Evidence) -> Finding | None:
    """The scored split is too small to show a difference of the size that was asked for."""
    found = evidence.levels
    if not isinstance(evidence.run, Distill):
        return None
    if found.behind is None:
        raise NotExamined("there is no paired difference from the teacher to learn it from")
    half, wanted = found.behind.half, evidence.difference
    if half <= wanted:
        return None
    # The interval shrinks with the square root of the number of examples.
    needed = int(np.ceil(found.examples * (half / wanted) ** 2))
    agreement = evidence.metrics.get("agreement")
    agree = "" if agreement is None else f", at {agreement:.1f}% agreement"
    return Finding(
        severity=Severity.HINT,
        sentence=f"{found.where} show differences from the teacher of {half:.1f} points of {found.metric} or more"
        f"{agree}; smaller ones are not distinguished from zero, and {wanted:g} points need about {needed:,} examples.",
        option=f"score on more examples, or expect to see no less than {half:.1f} points",
        numbers={
            "examples": found.examples, "least_difference": round(half, 4), "asked": wanted, "needed": needed,
            "agreement": agreement,
        },
    )  # fmt: skip
