"""The figures of a part of a report, made of its points: cost against score, seeds, differences, costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stillery.reports import charts
from stillery.reports.content import Apart, Choice, Figure, Point

__all__ = ["COSTS", "cost_figure", "difference_figure", "pareto_figure", "seed_figure"]

COSTS = {
    "train_seconds": "training, seconds",
    "megabytes": "size on disk, MB",
    "parameters": "parameters, millions",
    "latency_ms": "latency per text, ms",
    "texts_per_second": "texts generated per second",
    "peak_megabytes": "peak memory while training, MB",
}
"""What is known of the cost of a model, and how charts call it."""

_CUT = f"A chart shows at most {charts.MOST} models; the table above has all of them."

Tasks = Mapping[str, tuple[str, Sequence[Point]]]
"""By task its metric and its points, in the order of the table."""


def pareto_figure(tasks: Tasks) -> list[Figure]:
    """Score against size and against latency, one figure for each task where there are several."""
    found = []
    for task, (metric, points) in tasks.items():
        made = [
            Choice(label=title, spec=spec)
            for cost, title in (("megabytes", "size on disk, MB"), ("latency_ms", "latency per text, ms"))
            if (spec := charts.score_against(points, cost, title, metric)) is not None
        ]
        if made:
            caption = (
                "The dashed line is the Pareto front: no other model has a higher score at that cost or a lower one. "
                "Bars are 95% intervals; points whose bars overlap may change places with other examples or seeds."
            )
            title = _named("Score against size and latency", task, tasks)
            found.append(Figure(title=title, short="Size and latency", caption=caption, charts=made))
    return found


def seed_figure(tasks: Tasks, caption: str, *, title: str = "Every seed") -> list[Figure]:
    """Every seed, or run, as a dot; several tasks are chosen from."""
    made = [
        Choice(label=task or metric, spec=charts.seeds_and_means(_sorted(points), metric))
        for task, (metric, points) in tasks.items()
        if points
    ]
    cut = any(len(points) > charts.MOST for _, points in tasks.values())
    said = f"{caption} {_CUT}" if cut else caption
    return (
        [Figure(title=title, short=title.split()[-1].capitalize() + "s", caption=said, charts=made, one_of=True)]
        if made
        else []
    )


def difference_figure(apart: Mapping[str, Sequence[Apart]], metrics: Mapping[str, str], caption: str) -> list[Figure]:
    """Paired differences; `apart` has them by what they are called: a baseline, or a task and a baseline."""
    made = [Choice(label=label, spec=charts.differences(some, metrics[label])) for label, some in apart.items() if some]
    cut = any(len(some) > charts.MOST for some in apart.values())
    said = f"{caption} {_CUT}" if cut else caption
    return (
        [Figure(title="Paired differences", short="Differences", caption=said, charts=made, one_of=True)]
        if made
        else []
    )


def cost_figure(tasks: Tasks) -> list[Figure]:
    """The costs of the models of each task."""
    found = []
    for task, (_, points) in tasks.items():
        made = [
            Choice(label=title, spec=spec)
            for cost, title in COSTS.items()
            if (spec := charts.costs(points, cost, title, 1e6 if cost == "parameters" else 1)) is not None
        ]
        if made:
            caption = (
                "Latency: median per text, batch 1, one thread, on the machine of the run; training: seconds of the "
                "run itself, without its teacher's. Machines that did other things meanwhile blur both."
            )
            title = _named("What they cost", task, tasks)
            found.append(Figure(title=title, short="Costs", caption=caption, charts=made))
    return found


def _named(title: str, task: str, tasks: Tasks) -> str:
    return f"{title}: {task}" if len(tasks) > 1 else title


def _sorted(points: Sequence[Point]) -> list[Point]:
    return sorted(points, key=lambda one: (not one.teacher, -one.score, one.name))
