"""A table of a study as a part of a report: its reading, its numbers, and the charts of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from stillery.reports import charts
from stillery.reports.content import Apart, Cell, Chart, Column, Figure, Part, Point, Reading, Table, number
from stillery.reports.figures import COSTS, cost_figure, difference_figure, pareto_figure, seed_figure
from stillery.reports.run_part import MARKS, difference, scored
from stillery.reports.search import search_figure, search_table
from stillery.reports.words import choice, highest, over_tasks
from stillery.study import tables as study_tables
from stillery.study.cd_diagram import cd_specification
from stillery.study.compare import Comparison
from stillery.study.results import Key, Row
from stillery.study.statistics import Conclusions, TaskConclusion
from stillery.study.tried import Tried

__all__ = ["study_part"]

Costs = Callable[[Key], Mapping[str, float | None]]

_LONG = 450
"""Characters of a reading that still stands in the summary."""

_CAPTION = (
    "A method minus the baseline over the seeds that both have; bars are 95% intervals of a bootstrap over seeds and, "
    "where predictions are kept, examples. Blue: p of at most 0.05 after Holm, with 3 seeds or more."
)


def study_part(
    found: Conclusions,
    costs: Costs,
    *,
    title: str = "",
    notes: Sequence[str] = (),
    tried: Sequence[Tried] = (),
    margin: float | None = None,
) -> Part:
    """Return the part of a table of a study.

    Args:
        found: what can be concluded from it.
        costs: gives what a cell cost, by task, row and seed.
        title: its name, if the study has several.
        notes: what a reader has to know about its terms.
        tried: the settings that were tried, where one of several was chosen.
        margin: the margin of layer strategies.
    """
    tasks = {one.task.name: (one.task.metric, _points(found, one, costs)) for one in found.tasks}
    several = len(found.tasks) > 1
    sentences, readings = list[str](), list[Reading]()

    def read(heading: str, text: str) -> None:
        """Put a reading into the summary, a long one under a heading of its own."""
        if len(text) <= _LONG:
            sentences.append(text)
        else:
            readings.append(Reading(title=heading, text=text))

    if several:
        sentences += over_tasks(found)
        read("Against the baselines", study_tables.score_table(found).reading)
    else:
        metric, points = tasks[found.tasks[0].task.name]
        table = study_tables.task_table(found, found.tasks[0])
        sentences += [*highest(points, metric), table.reading, *choice(points)]
    tables = [_shown(study_tables.score_table(found))] if several else []
    tables.append(_table(found, tasks))
    if several and found.overall is not None and len(found.overall.tasks) > 1:
        overall = study_tables.overall_table(found, found.overall)
        read("All tasks together", overall.reading)
        tables.append(_shown(overall))
    figures = [
        *pareto_figure(tasks),
        *seed_figure(tasks, "A dot is a seed, the tick their mean, the band Student's 95% interval of the mean."),
        *_differences(found),
        *_ranks(found),
    ]
    if found.spreads:
        spread = study_tables.spread_table(found, margin=margin)
        read("Layer strategies", spread.reading)
        tables.append(_shown(spread))
        figures.append(_spread(found))
    if several:
        each = [(task.task.name, study_tables.task_table(found, task).reading) for task in found.tasks]
        readings += [Reading(title=name, text=text) for name, text in each]
    tables += search_table(tried)
    figures += search_figure(tried)
    return Part(
        title=title, sentences=[*(one for one in sentences if one), *notes], readings=readings, tables=tables,
        figures=[*figures, *cost_figure(tasks)],
    )  # fmt: skip


def _points(found: Conclusions, task: TaskConclusion, costs: Costs) -> list[Point]:
    results, points = found.results, []
    for row in [*results.teachers, *results.students]:
        summary = task.summaries[row.name]
        if summary.mean is None:
            continue
        scores = results.scores(task.task.name, row)
        each = [costs((task.task.name, row.name, seed)) for seed in scores]
        points.append(
            Point(
                name=row.name, task=task.task.name, score=summary.mean, low=summary.low, high=summary.high,
                seeds={str(seed): score for seed, score in scores.items()}, teacher=row.teacher,
                costs={name: _mean([one.get(name) for one in each]) for name in (*COSTS, "agreement")},
                best=task.best is not None and row.name in task.best.tied,
            )
        )  # fmt: skip
    return points


def _mean(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return fmean(known) if known else None


def _table(found: Conclusions, tasks: Mapping[str, tuple[str, Sequence[Point]]]) -> Table:
    """Return the table of all methods on all tasks, with costs, to be sorted and filtered."""
    results, several = found.results, len(found.tasks) > 1
    metrics = {task.task.metric for task in found.tasks}
    terms = [what for what in ("start", "head") if len({getattr(row, what) for row in results.students}) > 1]
    costs = [
        (cost, name, help_)
        for cost, name, help_ in (
            ("agreement", "agreement, %", "how often it gives its teacher's answer"),
            ("parameters", "params, M", "parameters in millions"),
            ("megabytes", "MB", "size of the weights on disk"),
            ("latency_ms", "ms/text", "median, batch 1, one thread"),
            ("generation_ms", "ms/generated text", "on the machine of the run"),
            ("train_seconds", "training, s", "mean over seeds"),
        )
        if any(one.costs.get(cost) is not None for _, points in tasks.values() for one in points)
    ]
    columns = [
        *([Column(name="task", numeric=False)] if several else []),
        Column(name="method", numeric=False),
        *(Column(name=what, numeric=False) for what in terms),
        Column(
            name=metrics.pop() if len(metrics) == 1 else "score",
            help="mean over seeds; bold: not distinguished from the best",
        ),
        *(
            Column(name=f"minus {one}", help="95% interval of a bootstrap; p by Holm's method")
            for one in found.baselines
        ),
        Column(name="seeds"),
        *(Column(name=name, help=help_) for _, name, help_ in costs),
    ]
    rows = []
    for task in found.tasks:
        points = {one.name: one for one in tasks[task.task.name][1]}
        for row in [*results.teachers, *results.students]:
            one = points.get(row.name)
            head = [Cell(text=task.task.name, key=task.task.name)] if several else []
            head.append(_name(row))
            head += [Cell(text=getattr(row, what) or "-") for what in terms]
            rows.append([*head, *_numbers(found, task, row, one), *(_cost(one, cost) for cost, _, _ in costs)])
    notes = [
        "Bold: the highest mean of a student and all that cannot be distinguished from it.",
        MARKS,
    ]
    return Table(
        title="Results", columns=columns, rows=rows, notes=notes, search=True,
        tasks=[task.task.name for task in found.tasks] if several else (),
    )  # fmt: skip


def _name(row: Row) -> Cell:
    return Cell(text=row.name, more="teacher" if row.teacher else "", key=row.name)


def _numbers(found: Conclusions, task: TaskConclusion, row: Row, one: Point | None) -> list[Cell]:
    summary = task.summaries[row.name]
    between = None if one is None else (one.low, one.high)
    failed = f"{summary.failed} failed" if summary.failed else ""
    runs = str(summary.planned) if summary.complete else f"{len(summary.seeds)} of {summary.planned}"
    pairs = [
        next((each for each in task.comparisons[baseline] if each.row == row.name), None)
        for baseline in found.baselines
    ]
    return [
        scored(None if one is None else one.score, between, bold=one is not None and one.best),
        *(
            Cell(text="baseline")
            if baseline == row.name
            else difference(None if pair is None else _apart(pair, found.level))
            for baseline, pair in zip(found.baselines, pairs, strict=True)
        ),
        Cell(text=runs, more=failed, key=len(summary.seeds)),
    ]


def _cost(one: Point | None, cost: str) -> Cell:
    value = None if one is None else one.costs.get(cost)
    if cost == "parameters" and value is not None:
        value /= 1e6
    return number(value, "{:.0f}" if cost == "train_seconds" else "{:.1f}")


def _apart(one: Comparison, level: float) -> Apart:
    return Apart(
        name=one.row, other=one.other, value=one.value, low=one.low, high=one.high, clear=one.told_apart(level),
        p=one.adjusted,
    )  # fmt: skip


def _differences(found: Conclusions) -> list[Figure]:
    several = len(found.tasks) > 1
    apart, metrics = {}, {}
    for task in found.tasks:
        for baseline in found.baselines:
            label = f"{task.task.name}, minus {baseline}" if several else f"minus {baseline}"
            apart[label] = [_apart(one, found.level) for one in task.comparisons[baseline]]
            metrics[label] = task.task.metric
    return difference_figure(apart, metrics, _CAPTION)


def _ranks(found: Conclusions) -> list[Figure]:
    """Return the critical-difference diagram, if there are enough methods and tasks for one."""
    spec = cd_specification(found)
    if spec is None:
        return []
    caption = "Average rank of each method over the tasks; a bar joins methods that cannot be told apart over tasks."
    charts_ = [Chart(spec={"description": caption} | spec)]
    return [Figure(title="Ranks over tasks", short="Ranks", caption=caption, charts=charts_)]


def _spread(found: Conclusions) -> Figure:
    rows: list[dict[str, Any]] = [
        {
            "task": one.task, "value": round(one.value, 3), "low": one.low, "high": one.high,
            "noise": None if one.noise is None else round(one.noise.mean, 3),
            "noise_high": None if one.noise is None else round(one.noise.high, 3),
        }
        for one in found.spreads
    ]  # fmt: skip
    caption = (
        f"Points between the highest and the lowest mean of {', '.join(found.spreads[0].strategies)}, with its 95% "
        "interval; grey reaches to what seeds alone would hardly exceed."
    )
    return Figure(
        title="Spread over layer strategies",
        short="Spread",
        caption=caption,
        charts=[Chart(spec=charts.spreads(rows))],
    )


def _shown(table: study_tables.Table) -> Table:
    """Return a table of the study's text report as one of the page."""
    rows = [[Cell(text=one.text, key=_key(one.text), bold=one.bold) for one in row] for row in table.rows]
    numeric = [
        all(isinstance(cell.key, float) or cell.text == "-" for cell in cells) for cells in zip(*rows, strict=True)
    ]
    columns = [Column(name=name, numeric=is_number) for name, is_number in zip(table.columns, numeric, strict=True)]
    return Table(title=table.title, columns=columns, rows=rows, notes=table.notes, reading="")


def _key(text: str) -> float | str:
    """Return what an entry is sorted by: the number it begins with, else its text."""
    try:
        return float(text.split(" ")[0].lstrip("<"))
    except ValueError:
        return text
