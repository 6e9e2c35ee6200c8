"""The figures of a part of a report, made of its points: cost against score, seeds, differences, costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stillery.reports import charts
from stillery.reports.content import Apart, Chart, Figure, Point

__all__ = ["COSTS", "cost_figure", "difference_figure", "pareto_figure", "seed_figure"]

COSTS = {
    "train_seconds": "training, seconds",
    "megabytes": "size on disk, MB",
    "parameters": "parameters, millions",
    "latency_ms": "latency per text, ms",
    "generation_ms": "time per generated text, ms",
    "peak_megabytes": "peak memory while training, MB",
}
"""What is known of the cost of a model, and how charts call it."""

_CUT = f"A chart shows at most {charts.MOST} models; the table above has all of them."

Tasks = Mapping[str, tuple[str, Sequence[Point]]]
"""By task its metric and its points, in the order of the table."""


def pareto_figure(tasks: Tasks) -> list[Figure]:
    """Score against size and against latency on each task."""
    made = [
        Chart(group=task, spec=spec)
        for task, (metric, points) in tasks.items()
        for cost, title in ((name, COSTS[name]) for name in ("megabytes", "latency_ms", "generation_ms"))
        if (spec := charts.score_against(points, cost, title, metric)) is not None
    ]
    caption = (
        "The dashed line is the Pareto front: no other model has a higher score at that cost or a lower one. Bars are "
        "95% intervals; points whose bars overlap may change places with other examples or seeds."
    )
    return _figure("Score against size and latency", "Size and latency", caption, made)


def seed_figure(tasks: Tasks, caption: str, *, of: str = "seed") -> list[Figure]:
    """Every seed, or run, of each task as a dot."""
    made = [
        Chart(group=task, spec=charts.seeds_and_means(_sorted(points), metric))
        for task, (metric, points) in tasks.items()
        if points
    ]
    cut = any(len(points) > charts.MOST for _, points in tasks.values())
    return _figure(f"Every {of}", f"{of.capitalize()}s", f"{caption} {_CUT}" if cut else caption, made)


def difference_figure(apart: Mapping[str, Sequence[Apart]], metrics: Mapping[str, str], caption: str) -> list[Figure]:
    """Paired differences; `apart` has them by what they are called: a baseline, or a task and a baseline."""
    made = [Chart(group=label, spec=charts.differences(some, metrics[label])) for label, some in apart.items() if some]
    cut = any(len(some) > charts.MOST for some in apart.values())
    return _figure("Paired differences", "Differences", f"{caption} {_CUT}" if cut else caption, made)


def cost_figure(tasks: Tasks) -> list[Figure]:
    """The costs of the models of each task."""
    made = [
        Chart(group=task, spec=spec)
        for task, (_, points) in tasks.items()
        for cost, title in COSTS.items()
        if (spec := charts.costs(points, cost, title, 1e6 if cost == "parameters" else 1)) is not None
    ]
    caption = (
        "Latency: median per text, batch 1, one thread, on the machine of the run; training: seconds of the run, "
        "without its teacher's. Machines that did other things meanwhile blur both."
    )
    return _figure("What they cost", "Costs", caption, made)


def _figure(title: str, short: str, caption: str, made: Sequence[Chart]) -> list[Figure]:
    return [Figure(title=title, short=short, caption=caption, charts=made)] if made else []


def _sorted(points: Sequence[Point]) -> list[Point]:
    return sorted(points, key=lambda one: (not one.teacher, -one.score, one.name))
