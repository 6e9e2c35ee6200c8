"""The tables of a study: what stands in each, with the reading under it; `render` writes them in four formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stillery.evaluation.ranking_metrics import RANKING
from stillery.study.across import Estimate, Overall
from stillery.study.compare import Comparison, Summary
from stillery.study.reading import read_task
from stillery.study.reading_overall import read_overall, read_scores
from stillery.study.reading_spread import read_spreads
from stillery.study.results import Published, Results, Row
from stillery.study.sentences import listed
from stillery.study.statistics import Conclusions, TaskConclusion

__all__ = ["Entry", "Table", "overall_table", "score_table", "spread_table", "tables", "task_table"]

NOTHING = "-"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of a table; `bold` marks the best and all that cannot be distinguished from it."""

    text: str
    bold: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        name: what its files are called.
        title: what it shows.
        columns: their headings.
        rows: the entries of each row.
        notes: how its numbers are to be read.
        reading: what they say.
        records: the same numbers in full, one mapping for each of them that belong together.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...]
    reading: str
    records: tuple[Mapping[str, Any], ...]


def tables(found: Conclusions, *, margin: float | None = None) -> list[Table]:
    """All tables of a study: all scores, each task, all tasks together and, where asked for, layer strategies."""
    listed_ = [score_table(found), *(task_table(found, task) for task in found.tasks)]
    if found.overall is not None and len(found.overall.tasks) > 1:
        listed_.append(overall_table(found, found.overall))
    if found.spreads:
        listed_.append(spread_table(found, margin=margin))
    return listed_


def score_table(found: Conclusions) -> Table:
    """Rows x tasks: mean and standard deviation over seeds, teachers first, published numbers last."""
    results = found.results
    shown = _shown(results)
    rows = [*results.teachers, *results.students]
    entries = [(*_row(row, shown), *(_score(task, row) for task in found.tasks)) for row in rows]
    for one in results.published:
        label = Entry(text=_published(one))
        blank = (Entry(text=NOTHING),) * len(shown)
        values = (one.scores.get(task.name) for task in results.tasks)
        entries.append((label, *blank, *(Entry(text=_number(value)) for value in values)))
    notes = [
        "Mean (standard deviation) over seeds, in percent; where runs are missing or failed, how many there are.",
        "Bold: the highest mean of a student and all that cannot be distinguished from it (bootstrap, Holm over all "
        "pairs).",
        *_tried(results),
    ]
    if results.published:
        notes.append("Published numbers are of other models or data, as named; they are compared with nothing.")
    return Table(
        name="scores",
        title="Scores of all tasks",
        columns=("method", *shown, *(f"{task.name} ({task.metric})" for task in results.tasks)),
        rows=tuple(entries),
        notes=tuple(notes),
        reading=read_scores(found),
        records=(
            *(_record(results, task, row) for task in found.tasks for row in rows),
            *(_published_record(one, task) for one in results.published for task in one.scores),
        ),
    )


def task_table(found: Conclusions, task: TaskConclusion) -> Table:
    """The rows of one task: mean, standard deviation, interval, and the difference to each baseline."""
    results, shown = found.results, _shown(found.results)
    rows = [*results.teachers, *results.students]
    entries = []
    for row in rows:
        one = task.summaries[row.name]
        apart = [_difference(task, baseline, row.name) for baseline in found.baselines]
        entries.append(
            (
                *_row(row, shown),
                Entry(text=_number(one.mean), bold=_is_best(task, row)),
                Entry(text=_number(one.deviation)),
                Entry(text=_between(one.low, one.high)),
                Entry(text=_runs(one)),
                *(entry for pair in apart for entry in pair),
            )
        )
    level = f"{100 * found.level:g}%"
    drawn = "queries" if task.task.metric in RANKING else "examples"
    over = f", and {task.examples:,} {drawn}" if task.examples else ""
    against = [heading for baseline in found.baselines for heading in (f"minus {baseline} [{level}]", "p")]
    return Table(
        name=f"task-{task.task.name}",
        title=f"{task.task.name}: {task.task.metric}",
        columns=("method", *shown, "mean", "sd", f"{level} interval", "seeds", *against),
        rows=tuple(entries),
        notes=(
            "Intervals of means: Student's t over seeds.",
            f"Differences: points, by a bootstrap that resamples seeds{over}, the same for all rows; p values by "
            "Holm's method over the rows.",
            *_tried(results),
        ),
        reading=read_task(found, task),
        records=tuple(_record(results, task, row) for row in rows),
    )


def overall_table(found: Conclusions, one: Overall) -> Table:
    """All tasks together: interquartile mean, average rank, probability of improvement."""
    level = f"{100 * found.level:g}%"
    against = [baseline for baseline in found.baselines if baseline in one.improvement]
    entries = []
    for row in sorted(one.rows, key=lambda name: (one.rank[name].value, name)):
        chances = [one.improvement[baseline].get(row) for baseline in against]
        entries.append(
            (
                Entry(text=row),
                Entry(text=_estimate(one.mean[row], 1)),
                Entry(text=_estimate(one.rank[row], 2)),
                *(Entry(text=NOTHING if chance is None else _estimate(chance, 2)) for chance in chances),
            )
        )
    notes = [
        f"Over {len(one.tasks)} tasks ({', '.join(one.tasks)}); {level} intervals by a bootstrap that resamples seeds "
        "within each task.",
        "Interquartile mean: of the middle half of all runs. Rank: 1 is best. P(better): that a run is better than one "
        "of the baseline on a task, 0.5 for equals.",
    ]
    if one.difference is not None and not one.difference.guard.reached:
        groups = "; ".join(listed(group) for group in one.difference.groups)
        notes.append(f"Groups that cannot be told apart (Friedman, Wilcoxon with Holm): {groups}.")
    return Table(
        name="overall",
        title="All tasks together",
        columns=(
            "method",
            "interquartile mean",
            "average rank",
            *(f"P(better than {baseline})" for baseline in against),
        ),
        rows=tuple(entries),
        notes=tuple(notes),
        reading=read_overall(found),
        records=tuple(_overall_record(one, row) for row in one.rows),
    )


def spread_table(found: Conclusions, *, margin: float | None = None) -> Table:
    """The spread over layer strategies, a row for each task."""
    level = f"{100 * found.level:g}%"
    entries = []
    for one in found.spreads:
        noise = one.noise
        entries.append(
            (
                Entry(text=one.task),
                Entry(text=f"{one.value:.1f}"),
                Entry(text=_between(one.low, one.high)),
                Entry(text=one.highest),
                Entry(text=one.lowest),
                Entry(text=NOTHING if noise is None else f"{noise.mean:.1f} (up to {noise.high:.1f})"),
                Entry(text=NOTHING if noise is None else _p(noise.adjusted)),
                Entry(text=str(len(one.seeds))),
            )
        )
    return Table(
        name="spread",
        title="How far layer strategies lie apart",
        columns=("task", "max - min", f"{level} interval", "highest", "lowest", "seeds alone", "p", "seeds"),
        rows=tuple(entries),
        notes=(
            "Points between the highest and the lowest mean. The interval allows for noise making one the highest.",
            "Seeds alone: the spread where strategies are permuted within each seed, its mean and its upper "
            f"{level} limit; p values by Holm's method over the tasks.",
        ),
        reading=read_spreads(found, margin=margin),
        records=tuple(asdict(one) for one in found.spreads),
    )


def _shown(results: Results) -> tuple[str, ...]:
    """The columns that say how rows begin, where students differ in it."""
    return tuple(what for what in ("start", "head") if len({getattr(row, what) for row in results.students}) > 1)


def _tried(results: Results) -> list[str]:
    """How many settings the rows had to choose from, if they had a choice."""
    counts = {row.name: row.trials or 1 for row in results.students}
    if max(counts.values(), default=1) == 1:
        return []
    each = f"{min(counts.values())} for each row"
    said = each if len(set(counts.values())) == 1 else ", ".join(f"{name} {count}" for name, count in counts.items())
    return [f"Settings tried, of which what was held out chose one: {said}."]


def _row(row: Row, shown: Sequence[str]) -> tuple[Entry, ...]:
    name = f"{row.name} (teacher)" if row.teacher else row.name
    return (Entry(text=name), *(Entry(text=getattr(row, what) or NOTHING) for what in shown))


def _is_best(task: TaskConclusion, row: Row) -> bool:
    return task.best is not None and row.name in task.best.tied


def _score(task: TaskConclusion, row: Row) -> Entry:
    one = task.summaries[row.name]
    if one.mean is None:
        return Entry(text=_absent(one))
    text = f"{one.mean:.1f}" if one.deviation is None else f"{one.mean:.1f} ({one.deviation:.1f})"
    return Entry(text=text if one.complete else f"{text}, {_runs(one)}", bold=_is_best(task, row))


def _absent(one: Summary) -> str:
    if not one.failed:
        return "missing"
    return "failed" if one.failed == one.planned else f"missing, {one.failed} of {one.planned} failed"


def _runs(one: Summary) -> str:
    if one.complete:
        return str(one.planned)
    failed = f", {one.failed} failed" if one.failed else ""
    return f"{len(one.seeds)} of {one.planned}{failed}"


def _difference(task: TaskConclusion, baseline: str, row: str) -> tuple[Entry, Entry]:
    one = _comparison(task, baseline, row)
    if one is None:
        return Entry(text=NOTHING), Entry(text=NOTHING)
    between = "" if one.low is None else f" [{one.low:+.1f}, {one.high:+.1f}]"
    return Entry(text=f"{one.value:+.1f}{between}"), Entry(text=_p(one.adjusted))


def _comparison(task: TaskConclusion, baseline: str, row: str) -> Comparison | None:
    return next((one for one in task.comparisons[baseline] if one.row == row), None)


def _published(one: Published) -> str:
    return f"{one.name} (published: {one.source}; {one.model}; {one.data})"


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f}"


def _between(low: float | None, high: float | None) -> str:
    return NOTHING if low is None or high is None else f"{low:.1f} to {high:.1f}"


def _estimate(one: Estimate, digits: int) -> str:
    value = f"{one.value:.{digits}f}"
    return value if one.low is None else f"{value} ({one.low:.{digits}f} to {one.high:.{digits}f})"


def _p(value: float | None) -> str:
    if value is None:
        return NOTHING
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _record(results: Results, task: TaskConclusion, row: Row) -> dict[str, Any]:
    """The numbers of a row on a task in full."""
    one = task.summaries[row.name]
    record: dict[str, Any] = {
        "task": task.task.name, "metric": task.task.metric, "row": row.name, "start": row.start, "head": row.head,
        "trials": row.trials, "kind": "teacher" if row.teacher else "student", "mean": one.mean, "sd": one.deviation,
        "low": one.low, "high": one.high, "seeds": len(one.seeds), "planned": one.planned, "failed": one.failed,
        "scores": {str(seed): score for seed, score in results.scores(task.task.name, row).items()},
        "failures": {str(seed): why for seed, why in results.failed(task.task.name, row).items()},
        "best_or_tied": _is_best(task, row),
    }  # fmt: skip
    for baseline in task.comparisons:
        found = _comparison(task, baseline, row.name)
        for name in ("value", "low", "high", "p", "adjusted"):
            key = "difference" if name == "value" else name
            record[f"minus_{baseline}_{key}"] = None if found is None else getattr(found, name)
    return record


def _published_record(one: Published, task: str) -> dict[str, Any]:
    return {
        "task": task, "row": one.name, "kind": "published", "mean": one.scores[task], "source": one.source,
        "model": one.model, "data": one.data,
    }  # fmt: skip


def _overall_record(one: Overall, row: str) -> dict[str, Any]:
    record: dict[str, Any] = {"row": row, "tasks": len(one.tasks)}
    named = {"iqm": one.mean[row], "rank": one.rank[row]}
    named |= {f"better_than_{name}": rows[row] for name, rows in one.improvement.items() if row in rows}
    for name, estimate in named.items():
        record |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return record
