"""Scores to hold a student against: its teacher's, and those of the best constant answer on the same examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from stillery.errors import UserError
from stillery.evaluation import paired
from stillery.evaluation.measures import Measure
from stillery.evaluation.recorded import Recorded, measures

__all__ = ["Apart", "Levels", "levels"]

_TRIED = 20
"""The number of frequent answers that are tried as a constant one."""

_ROUNDED = 0.01

_NO_GAIN = 0.2
"""Share of the way from a constant answer to a perfect score that a model has to go."""


@dataclass(frozen=True)
class Apart:
    """A difference of two scores on the same examples, with its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half of the interval's width: smaller differences are not distinguished from zero."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        return f"{self.value:+.2f} (95%: {self.low:+.2f} to {self.high:+.2f})"

    def to_list(self) -> list[float]:
        """Return the difference and its interval."""
        return [round(one, 4) for one in (self.value, self.low, self.high)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Levels:
    """The main metric of a run, in percent, of every model on the examples that the run was scored on.

    Attributes:
        metric: its name; `agreement` with the teacher for examples without labels.
        examples: the number of examples.
        units: how many of them, or of their queries, a resample draws; None before that is known.
        split: the name of the split; None for a whole file.
        task: the name of the data.
        student: the score of the run's model.
        teacher: its teacher's; None without a teacher, or without labels.
        behind: the student's minus the teacher's.
        constant: the score of the best constant answer; None where it cannot be computed.
        answer: that answer, in words.
        of_teacher: the metric of the teacher's predictions, for its intervals.
        of_constant: the metric of the constant answer.
    """

    metric: str
    examples: int
    split: str | None
    task: str
    student: float
    teacher: float | None = None
    behind: Apart | None = None
    constant: float | None = None
    answer: str = ""
    of_teacher: Measure | None = None
    of_constant: Measure | None = None
    units: int | None = None

    @cached_property
    def teacher_gain(self) -> Apart | None:
        """The teacher's score minus that of the constant answer."""
        if self.of_teacher is None or self.of_constant is None:
            return None
        return _apart(self.of_teacher, self.of_constant, self.units or self.examples)

    @cached_property
    def teacher_interval(self) -> tuple[float, float] | None:
        """The 95% interval of the teacher's score."""
        return None if self.of_teacher is None else paired.interval(self.of_teacher, self.units or self.examples)

    @property
    def where(self) -> str:
        """The examples in words."""
        return f"{self.examples:,} {f'{self.split} ' if self.split else ''}examples"

    @property
    def lags(self) -> bool:
        """Whether the student is clearly below its teacher."""
        return self.behind is not None and self.behind.high < 0

    def gains_little(self, score: float) -> bool:
        """Whether a score is hardly above that of the best constant answer."""
        return self.constant is not None and score - self.constant < _NO_GAIN * (100 - self.constant)

    @property
    def student_is_weak(self) -> bool:
        """Whether there is something to explain: the student is below its teacher, or hardly above a constant."""
        return self.lags or self.gains_little(self.student)


def levels(metrics: Mapping[str, Any], recorded: Recorded | None) -> Levels:
    """Compute the scores of a finished run from its metrics and its recorded predictions."""
    metric = next(iter(metrics["metrics"]))
    teacher = metrics.get("teacher_metrics", {}).get(metric)
    split = metrics.get("split", metrics.get("part"))
    found = Levels(
        metric=metric, examples=metrics["examples"], split=split if isinstance(split, str) else None,
        task=metrics["task"], student=metrics["metrics"][metric], teacher=teacher,
        behind=_recorded_difference(metrics, metric),
    )  # fmt: skip
    return found if recorded is None else _with_constant(found, recorded, list(metrics.get("per_class", {})))


def _recorded_difference(metrics: Mapping[str, Any], metric: str) -> Apart | None:
    held = metrics.get("difference", {})
    return Apart(held["value"], *held["interval"]) if held.get("metric") == metric else None


def _with_constant(found: Levels, recorded: Recorded, classes: Sequence[str]) -> Levels:
    """Add the best constant answer, and the differences from it."""
    answers = _constant_answers(recorded)
    given = [recorded, *(recorded.always(column) for _, column in answers)]
    labelled = recorded.right is not None and recorded.teacher is not None
    if labelled:
        given.append(recorded.of_teacher())
    chosen = _of_run(given, found, classes)
    if chosen is None or not answers:
        return found
    examples = len(recorded.units)
    scores = [paired.value(one, examples) for one in chosen[1 : 1 + len(answers)]]
    best = int(np.argmax(scores))
    if labelled:
        behind = found.behind or _apart(chosen[0], chosen[-1], examples)
        found = replace(found, of_teacher=chosen[-1], behind=behind)
    return replace(found, constant=scores[best], answer=answers[best][0], of_constant=chosen[1 + best], units=examples)


def _apart(one: Measure, other: Measure, examples: int) -> Apart:
    value, between = paired.difference(one, other, examples)
    return Apart(value, *between)


def _of_run(given: Sequence[Recorded], found: Levels, classes: Sequence[str]) -> list[Measure] | None:
    """Return the run's metric of every column of predictions; None where it does not follow from predictions."""
    try:
        possible = measures(given, found.metric, classes)
    except UserError:
        return None
    for some in possible:
        if abs(paired.value(some[0], len(given[0].units)) - found.student) <= _ROUNDED:
            return some
    return None


def _constant_answers(recorded: Recorded) -> list[tuple[str, pa.Array]]:
    """Return the answers to try as constant ones, in words, as columns of predictions."""
    right = recorded.right if recorded.right is not None else recorded.teacher
    if right is None:
        return []
    if recorded.does == "generates text":
        return _constant_texts(recorded, right)
    if recorded.does == "tags words":
        return _constant_tags(right)
    size = len(right)
    if pa.types.is_floating(right.type):
        mean = float(np.mean(right.to_numpy(zero_copy_only=False)))
        return [(f"always {mean:.3g}", pa.array(np.full(size, mean), right.type))]
    if pa.types.is_list(right.type):
        return [
            (f"always {', '.join(names) or 'no label'}", pa.array([list(names)] * size, right.type))
            for names in _label_sets(right.to_pylist())
        ]
    common = Counter(right.to_pylist()).most_common(_TRIED)
    return [(f"always {name}", pa.array([name] * size, right.type)) for name, _ in common]


def _label_sets(rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """The most frequent set of labels, and the first few of the most frequent labels."""
    labels = [name for name, _ in Counter(name for row in rows for name in row).most_common(_TRIED)]
    most = Counter(tuple(sorted(row)) for row in rows).most_common(1)[0][0]
    return list(dict.fromkeys([most, *(tuple(sorted(labels[:size])) for size in range(1, len(labels) + 1))]))


def _constant_tags(right: pa.Array) -> list[tuple[str, pa.Array]]:
    offsets, words = right.offsets, right.flatten()
    common = Counter(tag for tag in words.to_pylist() if tag is not None).most_common(_TRIED)
    return [
        (f"always {tag}", pa.ListArray.from_arrays(offsets, pa.array([tag] * len(words), pa.string())))
        for tag, _ in common
    ]


def _constant_texts(recorded: Recorded, right: pa.Array) -> list[tuple[str, pa.Array]]:
    """The most frequent target, and the source itself."""
    first = [texts[0] if isinstance(texts, list) else texts for texts in right.to_pylist()]
    text = Counter(first).most_common(1)[0][0]
    shown = text if len(text) <= 30 else f"{text[:27]}..."
    found = [(f"always {shown!r}", pa.array([text] * len(first), recorded.given.type))]
    if recorded.read is not None and pa.types.is_string(recorded.read.type):
        found.append(("the source copied", recorded.read.cast(recorded.given.type)))
    return found
