"""Sentences of the summary: which model to take."""

from __future__ import annotations

from collections.abc import Sequence

from stillery.reports.content import Point
from stillery.study.sentences import listed
from stillery.study.statistics import Conclusions

__all__ = ["choice", "highest", "over_tasks", "times"]

_FEW = 6
"""The largest number of names in a sentence."""


def highest(points: Sequence[Point], metric: str) -> list[str]:
    """Return a sentence about the student with the highest score, beside its teacher where that is known."""
    students = [one for one in points if not one.teacher]
    if not students:
        return []
    best = max(students, key=lambda one: (one.score, one.name))
    between = "" if best.low is None or best.high is None else f" ({best.low:.1f} to {best.high:.1f})"
    teachers = [one for one in points if one.teacher]
    beside = f"; its teacher has {teachers[0].score:.1f}" if len(teachers) == 1 else ""
    return [f"The highest {metric} of a student is that of {best.name}, {best.score:.1f}{between}{beside}."]


def choice(points: Sequence[Point]) -> list[str]:
    """Return which students are smallest and fastest of those that cannot be distinguished from the best."""
    best = [one for one in points if one.best and not one.teacher]
    if len(best) < 2:
        return []
    lines = []
    smallest = _least(best, "parameters")
    fastest = _least(best, "latency_ms") or _least(best, "generation_ms")
    if smallest is not None:
        lines.append(f"the smallest is {smallest.name} with {_millions(smallest)} parameters")
    if fastest is not None:
        speed = fastest.costs.get("latency_ms") or fastest.costs["generation_ms"]
        lines.append(f"the fastest is {fastest.name} with {speed:.1f} ms a text")
    names = [one.name for one in best]
    said = listed(names) if len(names) <= _FEW else f"{', '.join(names[:_FEW])} and {len(names) - _FEW} more"
    if not lines:
        return []
    return [f"Of the students that cannot be distinguished from the best ({said}) {' and '.join(lines)}."]


def over_tasks(found: Conclusions) -> list[str]:
    """Return which method is highest over all tasks, and on how many tasks each is distinguished from the baselines."""
    lines, count = [], len(found.tasks)
    if found.overall is not None and len(found.overall.tasks) > 1:
        mean = found.overall.mean
        top = max(mean, key=lambda row: (mean[row].value, row))
        between = "" if mean[top].low is None else f" ({mean[top].low:.1f} to {mean[top].high:.1f})"
        lines.append(
            f"Over {len(found.overall.tasks)} tasks {top} has the highest interquartile mean, "
            f"{mean[top].value:.1f}{between}."
        )
    for baseline in found.baselines:
        for sign, what in ((1, "Better"), (-1, "Worse")):
            told: dict[str, int] = {}
            for task in found.tasks:
                for one in task.comparisons[baseline]:
                    if one.told_apart(found.level) and one.value * sign > 0:
                        told[one.row] = told.get(one.row, 0) + 1
            if told:
                said = listed([f"{row} on {tasks}" for row, tasks in sorted(told.items(), key=lambda pair: -pair[1])])
                lines.append(f"{what} than {baseline} by more than chance, of {count} tasks: {said}.")
    return lines


def times(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun.

    >>> times(1, "run"), times(3, "run"), times(2, "study", "studies")
    ('1 run', '3 runs', '2 studies')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _least(points: Sequence[Point], cost: str) -> Point | None:
    """Return the model with the lowest cost, unless all have nearly the same."""
    known = [(value, place) for place, one in enumerate(points) if (value := one.costs.get(cost))]
    if len(known) < 2 or max(known)[0] < 1.05 * min(known)[0]:
        return None
    return points[min(known)[1]]


def _millions(one: Point) -> str:
    return f"{(one.costs['parameters'] or 0) / 1e6:.1f}M"
