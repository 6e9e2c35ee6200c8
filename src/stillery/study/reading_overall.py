"""The reading under the tables of all tasks: of all scores, and of the statistics over tasks."""

from __future__ import annotations

from collections.abc import Sequence

from stillery.study.compare import LEAST_SEEDS
from stillery.study.ranks import Guard
from stillery.study.results import Results
from stillery.study.sentences import count_seeds, listed, p_text
from stillery.study.statistics import Conclusions

__all__ = ["limit_of_tasks", "read_overall", "read_scores"]


def read_scores(found: Conclusions) -> str:
    """What the scores of all tasks say, in short: what differs from the baselines where, and which runs lack."""
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
            lines.append(f"No method is distinguished from {baseline} on any task.")
    if told and len(found.tasks) > 1:
        lines.append("P values are adjusted over methods, not over tasks.")
    return " ".join(lines)


def _where(found: Conclusions, baseline: str, sign: int) -> list[str]:
    """Which rows are distinguished from a baseline in one direction, each with the tasks where they are."""
    places: dict[str, list[str]] = {}
    for task in found.tasks:
        for one in task.comparisons[baseline]:
            if one.told_apart(found.level) and one.value * sign > 0:
                places.setdefault(one.row, []).append(task.task.name)
    return [f"{row} on {listed(names)}" for row, names in places.items()]


def _runs(results: Results) -> int:
    return len(results.tasks) * sum(len(results.planned(row)) for row in results.rows)


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
        said = [f"{count_seeds(count)} on {task}" for task, count in one.fewer.items()]
        lines.append(f"Only seeds count that every student has: {listed(said)}.")
    if one.difference is None:
        what = "one task" if len(one.tasks) == 1 else "one method"
        return " ".join([*lines, f"With {what} there is nothing to compare over tasks."])
    limit = one.difference.guard
    if limit.reached:
        lines.append(limit_of_tasks(limit))
    elif len(one.difference.groups) == 1:
        because = "" if one.difference.friedman is None else f" (Friedman's test: {p_text(one.difference.friedman)})"
        lines.append(f"Over {limit.count} tasks no method can be distinguished from another{because}.")
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


def limit_of_tasks(limit: Guard) -> str:
    """Why so few tasks cannot tell methods apart, and how many could."""
    pairs = "the comparison" if limit.comparisons == 1 else f"{limit.comparisons} comparisons"
    return (
        f"{limit.count} tasks cannot tell any methods apart, whatever the scores: the smallest p of a signed-rank "
        f"test is {limit.smallest:.3g}, and {pairs} would need {limit.below:.2g}; that takes {limit.needed} tasks."
    )
