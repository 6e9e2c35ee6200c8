"""`stillery analyse angles`: the angle between teacher layers as seen from each student layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.analyse.angles import BINS, AngleTable, layer_angles
from stillery.analyse.finding import Finding
from stillery.analyse.states import stack_named
from stillery.jobs.analyses.run_projections import to_teacher_width
from stillery.jobs.analyses.settings import Request
from stillery.jobs.analyses.snapshots import with_snapshots
from stillery.jobs.analyses.subjects import beside_teacher, read_examples
from stillery.pictures.charts import Scale, heat_map, line_chart, stacked, whole

__all__ = ["finding", "run"]

_TITLE = "The angle between teacher layers, as a student layer sees them"


def run(request: Request) -> Finding:
    """Measure the angles at a student's layers, also at the snapshots of its run."""
    own = request.own
    student, teacher = beside_teacher(request.subjects[0], own.teacher, request.data)
    inputs = read_examples(student, own, models=[teacher])
    stack = stack_named(own.stack, student.model, teacher.model)
    common = to_teacher_width(student, teacher, stack)
    measure = partial(
        layer_angles, student.model, teacher.model, stack=stack, total=len(inputs),
        students=None if common is None else common.layers, project=None if common is None else common.mapped,
    )  # fmt: skip
    (table,) = measure(inputs.batches())
    over = {}
    if common is None:
        # The maps are those of the trained student, so they do not fit earlier states.
        for step in with_snapshots(student):
            (over[step],) = measure(inputs.batches(), description=f"angles at step {step}")
    return replace(finding(table, inputs.said(), over), settings=inputs.about | {"teacher": teacher.name})


def finding(table: AngleTable, about: str, over: Mapping[int, AngleTable] | None = None) -> Finding:
    """Return the reading of a table of angles, and of those at earlier steps."""
    mean, acute = table.choices
    if len(table.teachers) < 2:
        sentence = "The teacher has one layer, so there is no choice between layers to look at."
    else:
        sentence = (
            f"Seen from the student's layers, the angle between two teacher layers is acute for {_span(acute)} of "
            f"{table.tokens:,} tokens on average over all choices of two, and between the first and the last for "
            f"{_span(table.acute[:, 0, -1])}."
        )
    rows = [
        {"student layer": str(layer), "mean cosine": f"{mean[place]:.3f}", "acute": f"{100 * acute[place]:.1f}%",
         "first and last: cosine": f"{table.mean[place, 0, -1]:.3f}",
         "acute ": f"{100 * table.acute[place, 0, -1]:.1f}%"}
        for place, layer in enumerate(table.students)
    ]  # fmt: skip
    data: dict[str, Any] = {
        "student_layers": table.students, "teacher_layers": table.teachers, "tokens": table.tokens, "mean": table.mean,
        "acute": table.acute, "histogram": table.histogram, "bins": np.linspace(-1, 1, table.histogram.shape[1] + 1),
    }  # fmt: skip
    charts = [_maps(table), _histogram(table)]
    if over:
        data["over_steps"] = {
            "steps": sorted(over), "mean": [over[step].choices[0] for step in sorted(over)],
            "acute": [over[step].choices[1] for step in sorted(over)],
        }  # fmt: skip
        charts.append(_over_steps(over))
    return Finding(
        analysis="angles", title=_TITLE, sentence=sentence, spec=whole(_TITLE, about, stacked(*charts)), data=data,
        table=rows,
    )  # fmt: skip


def _maps(table: AngleTable) -> dict[str, Any]:
    rows = [
        {"panel": f"student layer {layer}", "x": str(two), "y": str(one), "value": float(table.mean[place, i, j])}
        for place, layer in enumerate(table.students)
        for i, one in enumerate(table.teachers)
        for j, two in enumerate(table.teachers)
        if i != j
    ]
    scale = Scale(title="mean cosine", low=-1.0, high=1.0, signed=True, format=".1f")
    chart = heat_map(rows, x="teacher layer", y="teacher layer", scale=scale, panels="student layer")
    return {"title": "Mean cosine: above 0 the angle is acute"} | chart


def _histogram(table: AngleTable) -> dict[str, Any]:
    # Fewer bins than are counted, so that the lines can be told apart.
    counts = table.histogram.reshape(len(table.students), -1, max(BINS // 40, 1)).sum(-1)
    width = 2 / counts.shape[1]
    rows = [
        {
            "x": -1 + width * (bin_ + 0.5),
            "y": 100 * float(count / max(row.sum(), 1)),
            "series": f"student layer {layer}",
        }
        for layer, row in zip(table.students, counts, strict=True)
        for bin_, count in enumerate(row)
    ]
    title = f"Between teacher layers {table.teachers[0]} and {table.teachers[-1]}, token by token"
    chart = line_chart(
        rows, x="cosine", y="% of tokens", series="", points=False, y_scale={"zero": True},
        x_axis={"values": [-1, -0.5, 0, 0.5, 1]},
    )  # fmt: skip
    chart["height"] = 140
    return {"title": title} | chart


def _over_steps(over: Mapping[int, AngleTable]) -> dict[str, Any]:
    rows = [
        {"x": step, "y": 100 * float(share), "series": f"student layer {layer}"}
        for step in sorted(over)
        for layer, share in zip(over[step].students, over[step].choices[1], strict=True)
    ]
    chart = line_chart(rows, x="step", y="% acute, all pairs", series="", y_scale={"zero": False})
    chart["height"] = 140
    return {"title": "While training"} | chart


def _span(shares: NDArray[np.float64]) -> str:
    """Return the range of shares over the student's layers, in percent."""
    if np.isnan(shares).all():
        return "no"
    low, high = (f"{100 * one:.0f}%" for one in (np.nanmin(shares), np.nanmax(shares)))
    return low if low == high else f"{low} to {high}"
