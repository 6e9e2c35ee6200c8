"""`stillery analyse attention-weights`: which teacher layers the layers of students attend to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stillery.analyse.attention_weights import attention_weights
from stillery.analyse.finding import Finding
from stillery.analyse.states import stack_named
from stillery.jobs.analyses.run_projections import to_student_width
from stillery.jobs.analyses.settings import Request
from stillery.jobs.analyses.subjects import beside_teacher, names_of, read_examples
from stillery.pictures.charts import Scale, heat_map, whole

__all__ = ["finding", "run"]

_TITLE = "Which teacher layers the student's layers attend to"


def run(request: Request) -> Finding:
    """Measure ALP-KD's weights of each student on its teacher's layers."""
    own, maps = request.own, {}
    for name, place in zip(names_of(request.subjects), request.subjects, strict=True):
        student, teacher = beside_teacher(place, own.teacher, request.data)
        inputs = read_examples(student, own, models=[teacher])
        stack = stack_named(own.stack, student.model, teacher.model)
        pool = "mean" if stack == "decoder" else "first"
        maps[name] = attention_weights(
            student.model, teacher.model, inputs.batches(), stack=stack, pool=pool, scale=own.scale, total=len(inputs),
            project=to_student_width(student, teacher, stack), name=name if len(request.subjects) > 1 else "",
        )  # fmt: skip
    about = f"{inputs.said()}, {'first token' if pool == 'first' else 'mean of the tokens'}; rows add up to 1"
    return replace(finding(maps, about), settings=inputs.about | {"teacher": teacher.name})


def finding(maps: Mapping[str, NDArray[np.float64]], about: str) -> Finding:
    """Return the reading of one map of weights or several."""
    rows = [
        {"panel": name, "x": str(j), "y": str(i), "value": float(value)}
        for name, found in maps.items()
        for i, row in enumerate(found, 1)
        for j, value in enumerate(row, 1)
    ]
    said, table = [], []
    for name, found in maps.items():
        top, mean = [int(one) for one in found.argmax(1)], found.mean(0)
        said.append(
            f"in {name} teacher layer {int(mean.argmax()) + 1} of 1 to {len(mean)} gets most, {100 * mean.max():.0f}% "
            f"(even weights: {100 / len(mean):.0f}%)"
        )
        table += [
            {"student": name, "layer": str(i), "most on teacher layer": str(best + 1), "weight": f"{row[best]:.2f}"}
            for i, (row, best) in enumerate(zip(found, top, strict=True), 1)
        ]
    sentence = f"Of the attention of the student's layers, {'; '.join(said)}."
    scale = Scale(title="weight", low=0.0, high=1.0)
    chart = heat_map(
        rows, x="teacher layer", y="student layer", scale=scale, panels=None if len(maps) == 1 else "student"
    )
    return Finding(
        analysis="attention-weights", title=_TITLE, sentence=sentence, spec=whole(_TITLE, about, chart),
        data={"weights": dict(maps)}, table=table,
    )  # fmt: skip
