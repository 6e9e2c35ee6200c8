"""The reading under a table: what its numbers carry, in plain sentences, and nothing they do not carry."""

from __future__ import annotations

from collections.abc import Sequence

from stillery.study.compare import LEAST_SEEDS, Comparison
from stillery.study.ranks import Guard, guard
from stillery.study.results import Results
from stillery.study.spread import Spread, smallest_p
from stillery.study.statistics import Conclusions, TaskConclusion

__all__ = ["listed", "p_text", "read_overall", "read_scores", "read_spread", "read_spreads", "read_task"]


def read_task(found: Conclusions, task: TaskConclusion) -> str:
    """What the scores of one task say of methods against their baselines, and of the best."""
    lines = _gaps(found.results, task)
    if task.best is None:
        return " ".join([*lines, "No student has a score."])
    claims = [line for baseline in found.baselines for line in _against(found, task, baseline)]
    lines += [*claims, *_best(found, task), *_teachers(found.results, task)]
    lines += _footing(found, task)
    return " ".join(lines)


def read_scores(found: Conclusions) -> str:
    """What the scores of all tasks say, in short: what is told from the baselines where, and which runs lack."""
    results = found.results
    lines = []
    lacking = [len(results.missing(task.name, row)) for task in results.tasks for row in results.rows]
    failed = [len(results.failed(task.name, row)) for task in results.tasks for row in results.rows]
    if sum(lacking) or sum(failed):
        counts = ((sum(lacking), "missing"), (sum(failed), "failed"))
        said = listed([f"{count} {what}" for count, what in counts if count])
        lines.append(f"Of {_runs(results)} runs, {said}; nothing stands in for them.")
    every = [one for task in found.tasks for group in task.comparisons.values() for one in group]
    if every and max(len(one.seeds) for one in every) < LEAST_SEEDS:
        lines.append("With fewer than three seeds no method is said to be better or worse than another.")
        return " ".join(lines)
    told = False
    for baseline in found.baselines:
        better, worse = (_where(found, baseline, sign) for sign in (1, -1))
        told |= bool(better or worse)
        parts = [f"{what}: {'; '.join(some)}" for what, some in (("better", better), ("worse", worse)) if some]
        if parts:
            lines.append(f"Against {baseline}, {', '.join(parts)}. All other differences from it may be chance.")
        else:
            lines.append(f"No method is told from {baseline} on any task.")
    if told and len(found.tasks) > 1:
        lines.append("P values are adjusted over methods, not over tasks.")
    return " ".join(lines)


def _where(found: Conclusions, baseline: str, sign: int) -> list[str]:
    """Which rows are told from a baseline in one direction, each with the tasks where they are."""
    places: dict[str, list[str]] = {}
    for task in found.tasks:
        for one in task.comparisons[baseline]:
            if one.told_apart(found.level) and one.value * sign > 0:
                places.setdefault(one.row, []).append(task.task.name)
    return [f"{row} on {listed(names)}" for row, names in places.items()]


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def p_text(value: float) -> str:
    """A p value as a sentence has it.

    >>> p_text(0.0002), p_text(0.0312)
    ('p < 0.001', 'p = 0.031')
    """
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def _gaps(results: Results, task: TaskConclusion) -> list[str]:
    """Which runs there are not, if any."""
    short = []
    for row in results.rows:
        summary = task.summaries[row.name]
        if not summary.complete:
            failed = f" ({summary.failed} failed)" if summary.failed else ""
            short.append(f"{row.name} has {len(summary.seeds)} of {_seeds(summary.planned)}{failed}")
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
        lines.append(f"Not told from {baseline}: {listed([one.row for one in others])}.")
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
        f"No method can be told from {baseline} on {seeds} seeds; that does not show that they are alike: the largest "
        f"difference is that of {_differences([widest])}."
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
        return [f"{task.best.row} is told from all others as the best."]
    if len(others) == len(rows) - 1:
        return [f"No student can be told from the one with the highest mean, {task.best.row}."]
    return [f"The highest mean is that of {task.best.row}; not told from it: {listed(others)}."]


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
                f"nothing apart, since {_seeds(limit.count)} give no p below {limit.smallest:.3g}; with so many "
                f"methods it would take {limit.needed} seeds."
            )
    if task.why is not None and not every:
        lines.append(f"Examples were not resampled: {task.why}.")
    elif task.why is not None:
        lines.append(
            f"Only seeds were resampled ({task.why}), so this holds for these examples, not for others like them."
        )
    return lines


def read_overall(found: Conclusions) -> str:
    """What all tasks together say of the methods."""
    one = found.overall
    if one is None:
        return "There is no task on which all students share a seed, so nothing is said over tasks."
    lines = []
    if one.without:
        lines.append(f"Without any score, and left out: {listed(one.without)}.")
    if one.left_out:
        lines.append(f"Left out, because students share no seed there: {listed(one.left_out)}.")
    if one.fewer:
        said = [f"{_seeds(count)} on {task}" for task, count in one.fewer.items()]
        lines.append(f"Only seeds count that every student has: {listed(said)}.")
    if one.difference is None:
        what = "one task" if len(one.tasks) == 1 else "one method"
        return " ".join([*lines, f"With {what} there is nothing to compare over tasks."])
    limit = one.difference.guard
    if limit.reached:
        lines.append(_limit_of_tasks(limit))
    elif len(one.difference.groups) == 1:
        because = "" if one.difference.friedman is None else f" (Friedman's test: {p_text(one.difference.friedman)})"
        lines.append(f"Over {limit.count} tasks no method can be told from another{because}.")
    else:
        means = dict(one.difference.ranks)
        apart = [pair for pair in one.difference.pairs if not _together(pair.first, pair.second, one.difference.groups)]
        said = [
            f"{pair.first} from {pair.second} (ranks {means[pair.first]:.1f} and {means[pair.second]:.1f}, "
            f"{p_text(pair.adjusted)})"
            for pair in apart
        ]
        lines.append(f"Told apart over {limit.count} tasks, the better one first: {'; '.join(said)}.")
    lines.append("The intervals are about other seeds on these tasks, not about other tasks.")
    return " ".join(lines)


def _together(first: str, second: str, groups: Sequence[Sequence[str]]) -> bool:
    return any(first in group and second in group for group in groups)


def _limit_of_tasks(limit: Guard) -> str:
    pairs = "the comparison" if limit.comparisons == 1 else f"{limit.comparisons} comparisons"
    return (
        f"{limit.count} tasks cannot tell any methods apart, whatever the scores: the smallest p of a signed-rank "
        f"test is {limit.smallest:.3g}, and {pairs} would need {limit.below:.2g}; that takes {limit.needed} tasks."
    )


def read_spreads(found: Conclusions, *, margin: float | None = None) -> str:
    """What the spreads over layer strategies say, task by task.

    With a margin, in points, it is said where the choice of layers is shown to be worth no more than that.
    """
    lines = [read_spread(one, level=found.level, margin=margin) for one in found.spreads]
    return " ".join(lines) if lines else "No task has scores of two strategies on the same seed."


def read_spread(one: Spread, *, level: float, margin: float | None = None) -> str:
    """What the spread on one task says of the claim that it does not matter which layers are matched."""
    lines = [
        f"{one.task}: {len(one.strategies)} strategies lie {one.value:.1f} points apart, {one.highest} highest and "
        f"{one.lowest} lowest."
    ]
    if one.missing:
        lines.append(f"Without {listed(one.missing)}, of which there is no score.")
    if one.noise is None:
        lines.append("With one seed in common this may all be noise of the seed; nothing follows of the strategies.")
        return " ".join(lines)
    lines.append(f"Seeds alone would give {one.noise.mean:.1f} on average, and hardly more than {one.noise.high:.1f}.")
    p = one.noise.p if one.noise.adjusted is None else one.noise.adjusted
    alone = smallest_p(len(one.strategies), len(one.seeds))
    if len(one.seeds) < LEAST_SEEDS or alone > 1 - level:
        lines.append(f"{_seeds(len(one.seeds)).capitalize()} are too few to tell the one from the other.")
    elif p <= 1 - level:
        by = "" if one.low is None else f", by {one.low:.1f} to {one.high:.1f} points"
        lines.append(f"So it matters here which layers are matched{by} ({p_text(p)}).")
    else:
        lines.append(f"So the spread is not told from that of the seeds ({p_text(p)}).")
        if one.high is not None:
            lines.append(f"That does not show that it is 0: up to {one.high:.1f} points go with these scores.")
    if one.high is not None and margin is not None and len(one.seeds) >= LEAST_SEEDS:
        told = "is shown" if one.high <= margin else "is not shown"
        lines.append(f"That the choice of layers is worth {margin:g} points at most {told}.")
    return " ".join(lines)


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _runs(results: Results) -> int:
    return len(results.tasks) * sum(len(results.planned(row)) for row in results.rows)
