"""What can be concluded from the results of a study: all its statistics, from one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stillery.errors import ErrorList, nearest
from stillery.study.across import Overall, overall
from stillery.study.compare import LEVEL, Best, Comparison, Summary, against, best, holm, summarise
from stillery.study.resample import DRAWS, SEED, TaskDraws, resample
from stillery.study.results import Results, Task
from stillery.study.spread import Spread, spread

__all__ = ["Conclusions", "TaskConclusion", "conclude"]

BASELINES = ("none", "kd")


@dataclass(frozen=True, kw_only=True)
class TaskConclusion:
    """What the scores of one task say.

    Attributes:
        task: the task.
        summaries: the scores of every row over its seeds, teachers too.
        comparisons: by baseline, every other student minus it, where both have a seed in common.
        best: the best student and those that cannot be distinguished from it; None without any score.
        examples: how many examples were resampled; None where they were not.
        why: why they were not.
    """

    task: Task
    summaries: Mapping[str, Summary]
    comparisons: Mapping[str, tuple[Comparison, ...]]
    best: Best | None
    examples: int | None
    why: str | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Conclusions:
    """All that can be concluded from a study.

    Attributes:
        results: what was measured.
        level: the confidence level of all intervals; 1 minus it is the limit of p values.
        baselines: the rows that others are compared with.
        tasks: what each task says.
        overall: what all tasks together say; None where no task has a score of every student.
        spreads: the spread over layer strategies on each task, where two or more of them have a score.
    """

    results: Results
    level: float
    baselines: tuple[str, ...]
    tasks: tuple[TaskConclusion, ...]
    overall: Overall | None
    spreads: tuple[Spread, ...]


def conclude(
    results: Results,
    *,
    baselines: Sequence[str] | None = None,
    strategies: Sequence[str] = (),
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = SEED,
) -> Conclusions:
    """All statistics of a study.

    Args:
        results: what was measured.
        baselines: rows that all others are compared with; by default `none` and `kd`, where there are such rows.
        strategies: rows that differ only in which layers meet, such as forward, reverse, all-to-one and random.
        level: the confidence level.
        draws: how many bootstrap draws.
        seed: what they are drawn from; it has nothing to do with the seeds of the study.
    """
    students = [row.name for row in results.students]
    chosen = tuple(one for one in BASELINES if one in students) if baselines is None else tuple(baselines)
    errors = ErrorList()
    for kind, names in (("baseline", chosen), ("layer strategy", tuple(strategies))):
        for name in names:
            if name not in students:
                errors.add(f"no student {name!r} to be a {kind}; {nearest(name, students)}")
    errors.raise_any()
    drawn = [resample(results, task.name, draws=draws, seed=seed) for task in results.tasks]
    return Conclusions(
        results=results,
        level=level,
        baselines=chosen,
        tasks=tuple(_task(results, task, one, chosen, level) for task, one in zip(results.tasks, drawn, strict=True)),
        overall=overall(results, chosen, level=level, draws=draws, seed=seed),
        spreads=_adjusted([spread(one, strategies, level=level) for one in drawn] if strategies else []),
    )


def _task(results: Results, task: Task, draws: TaskDraws, baselines: Sequence[str], level: float) -> TaskConclusion:
    students = [row.name for row in results.students]
    return TaskConclusion(
        task=task,
        summaries={row.name: summarise(results, task.name, row, level=level) for row in results.rows},
        comparisons={baseline: against(draws, students, baseline, level=level) for baseline in baselines},
        best=best(draws, students, level=level),
        examples=draws.examples,
        why=draws.why,
    )


def _adjusted(spreads: Sequence[Spread | None]) -> tuple[Spread, ...]:
    """The spreads there are, with p values adjusted over the tasks."""
    found = [one for one in spreads if one is not None]
    adjusted = holm([None if one.noise is None else one.noise.p for one in found])
    return tuple(
        one if one.noise is None else replace(one, noise=replace(one.noise, adjusted=p))
        for one, p in zip(found, adjusted, strict=True)
    )
