"""The reading under the table of a task: what its numbers carry, in plain sentences, and nothing they do not carry."""

from __future__ import annotations

from collections.abc import Sequence

from stillery.study.compare import LEAST_SEEDS, Comparison
from stillery.study.ranks import guard
from stillery.study.results import Results
from stillery.study.sentences import count_seeds, listed
from stillery.study.statistics import Conclusions, TaskConclusion

__all__ = ["read_task"]


def read_task(found: Conclusions, task: TaskConclusion) -> str:
    """What the scores of one task say of methods against their baselines, and of the best."""
    lines = _gaps(found.results, task)
    if task.best is None:
        return " ".join([*lines, "No student has a score."])
    claims = [line for baseline in found.baselines for line in _against(found, task, baseline)]
    lines += [*claims, *_best(found, task), *_teachers(found.results, task)]
    lines += _footing(found, task)
    return " ".join(lines)


def _gaps(results: Results, task: TaskConclusion) -> list[str]:
    """Which runs there are not, if any."""
    short = []
    for row in results.rows:
        summary = task.summaries[row.name]
        if not summary.complete:
            failed = f" ({summary.failed} failed)" if summary.failed else ""
            short.append(f"{row.name} has {len(summary.seeds)} of {count_seeds(summary.planned)}{failed}")
    return [f"Not all runs are there: {'; '.join(short)}."] if short else []


def _against(found: Conclusions, task: TaskConclusion, baseline: str) -> list[str]:
    comparisons = task.comparisons[baseline]
    if not task.summaries[baseline].seeds:
        return [f"{baseline} has no score, so nothing is compared with it."]
    if not comparisons:
        return [f"No other student shares a seed with {baseline}."]
    few = [one for one in comparisons if len(one.seeds) < LEAST_SEEDS]
    lines = [_few(baseline, [one for one in few if len(one.seeds) == count], count) for count in (1, 2)]
    rest = [one for one in comparisons if one not in few]
    better = [one for one in rest if one.told_apart(found.level) and one.value > 0]
    worse = [one for one in rest if one.told_apart(found.level) and one.value < 0]
    if better:
        lines.append(f"Better than {baseline}: {_differences(better)}.")
    if worse:
        lines.append(f"Worse than {baseline}: {_differences(worse)}.")
    others = [one for one in rest if one not in better and one not in worse]
    if others and (better or worse):
        lines.append(f"Not distinguished from {baseline}: {listed([one.row for one in others])}.")
    elif others:
        lines.append(_none_told(found, baseline, others))
    return [*(line for line in lines if line), *_overlap(task, better, worse), *_starts(found.results, comparisons)]


def _few(baseline: str, comparisons: Sequence[Comparison], count: int) -> str:
    if not comparisons:
        return ""
    names = listed([one.row for one in comparisons])
    if count == 1:
        return (
            f"One seed: how far trainings scatter is not known, so {names} cannot be said to be better or worse than "
            f"{baseline}."
        )
    return f"Two seeds say too little of how far trainings scatter to call {names} better or worse than {baseline}."


def _none_told(found: Conclusions, baseline: str, comparisons: Sequence[Comparison]) -> str:
    widest = max(comparisons, key=lambda one: abs(one.value))
    counts = sorted({len(one.seeds) for one in comparisons})
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return (
        f"No method can be distinguished from {baseline} on {seeds} seeds; that does not show that they are alike: the "
        f"largest difference is that of {_differences([widest])}."
    )


def _differences(comparisons: Sequence[Comparison]) -> str:
    return ", ".join(
        f"{one.row} by {one.value:+.1f}" + ("" if one.low is None else f" ({one.low:+.1f} to {one.high:+.1f})")
        for one in sorted(comparisons, key=lambda one: -one.value)
    )


def _overlap(task: TaskConclusion, *told_apart: Sequence[Comparison]) -> list[str]:
    """That rows are told apart although the intervals of their own overlap, which looks like a contradiction."""
    names = []
    for one in (one for group in told_apart for one in group):
        ours, theirs = task.summaries[one.row], task.summaries[one.other]
        if None not in (ours.low, theirs.low) and ours.low <= theirs.high and theirs.low <= ours.high:  # type: ignore[operator]
            names.append(one.row)
    if not names:
        return []
    other = next(one.other for group in told_apart for one in group)
    return [
        f"The intervals of {listed(names)} and {other} overlap; what tells them apart are differences on the same "
        "seeds and examples."
    ]


def _starts(results: Results, comparisons: Sequence[Comparison]) -> list[str]:
    rows = {row.name: row for row in results.rows}
    lines = []
    for what in ("start", "head"):
        other = getattr(rows[comparisons[0].other], what)
        names = [one.row for one in comparisons if getattr(rows[one.row], what) != other]
        if names:
            lines.append(
                f"{listed(names)} and {comparisons[0].other} differ in their {what}, so their difference is not one of "
                "methods alone."
            )
    return lines


def _best(found: Conclusions, task: TaskConclusion) -> list[str]:
    assert task.best is not None
    rows = [row.name for row in found.results.students if task.summaries[row.name].seeds]
    others = [row for row in task.best.tied if row != task.best.row]
    if len(rows) == 1:
        return []
    if not others:
        return [f"{task.best.row} is distinguished from all others as the best."]
    if len(others) == len(rows) - 1:
        return [f"No student can be distinguished from the one with the highest mean, {task.best.row}."]
    return [f"The highest mean is that of {task.best.row}; not distinguished from it: {listed(others)}."]


def _teachers(results: Results, task: TaskConclusion) -> list[str]:
    lines = []
    for teacher in results.teachers:
        mean = task.summaries[teacher.name].mean
        above = [
            row.name
            for row in results.students
            if mean is not None and (task.summaries[row.name].mean or float("-inf")) > mean
        ]
        if above:
            lines.append(
                f"The mean of the teacher {teacher.name} is lower than that of {listed(above)}: it may be too weak to "
                "teach this task."
            )
    return lines


def _footing(found: Conclusions, task: TaskConclusion) -> list[str]:
    """What the p values rest on."""
    every = [one for group in task.comparisons.values() for one in group if one.p is not None]
    lines = []
    told = [one for one in every if one.told_apart(found.level)]
    if told:
        family = max(len(group) for group in task.comparisons.values())
        limit = guard(min(len(one.seeds) for one in told), family, level=found.level)
        if limit.reached:
            lines.append(
                "This takes differences between seeds for normally distributed: a test that does not could tell "
                f"nothing apart, since {count_seeds(limit.count)} give no p below {limit.smallest:.3g}; with so many "
                f"methods it would take {limit.needed} seeds."
            )
    if task.why is not None and not every:
        lines.append(f"Examples were not resampled: {task.why}.")
    elif task.why is not None:
        lines.append(
            f"Only seeds were resampled ({task.why}), so this holds for these examples, not for others like them."
        )
    return lines
