"""`stillery analyse similarity`: how alike the layers of student and teacher are."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from stillery.analyse.finding import Finding
from stillery.analyse.similarity import SimilarityTable, layer_similarities
from stillery.analyse.states import stack_named
from stillery.jobs.analyses.run_projections import to_teacher_width
from stillery.jobs.analyses.settings import Request
from stillery.jobs.analyses.subjects import beside_teacher, read_examples
from stillery.pictures.charts import Scale, heat_map, stacked, whole

__all__ = ["run"]


def run(request: Request) -> Finding:
    """Compare every layer of a student with every layer of its teacher."""
    own = request.own
    student, teacher = beside_teacher(request.subjects[0], own.teacher, request.data)
    inputs = read_examples(student, own, models=[teacher])
    stack = stack_named(own.stack, student.model, teacher.model)
    project = to_teacher_width(student, teacher, stack, needed=False)
    table = layer_similarities(
        student.model, teacher.model, inputs.batches(), stack=stack, pool=own.pool, total=len(inputs),
        project=None if project is None else project.all_layers,
    )  # fmt: skip
    about = f"{inputs.said()}, {'first token' if own.pool == 'first' else 'mean of the tokens'}"
    return replace(finding(table, about), settings=inputs.about | {"teacher": teacher.name})


def finding(table: SimilarityTable, about: str) -> Finding:
    """Return the reading of a similarity table."""
    best = [int(np.nanargmax(row)) if np.isfinite(row).any() else 0 for row in table.cka]
    last = len(table.cka) - 1
    ordered = last > 1 and all(one < two for one, two in itertools.pairwise(best[1:]))
    order = ", in the teacher's order" if ordered else ""
    said = ", ".join(f"{layer} to {best[layer]}" for layer in range(1, last + 1))
    sentence = (
        f"By linear CKA on {table.texts:,} texts, each student layer is most like one teacher layer{order} (student to "
        f"teacher: {said}); the last layer's CKA with the teacher's last is {table.cka[-1, -1]:.2f}."
    )
    parts = {"Linear CKA (1: the same up to a rotation)": (table.cka, Scale(title="CKA", low=0.0, high=1.0))}
    if table.cosine is not None:
        cosines = {"Cosine of the states": (table.cosine, Scale(title="cosine", low=-1.0, high=1.0, signed=True))}
        parts = cosines | parts
    charts = []
    for name, (values, scale) in parts.items():
        cells = [{"x": str(j), "y": str(i), "value": float(value)} for (i, j), value in np.ndenumerate(values)]
        chart = heat_map(cells, x="teacher layer (0: embedding)", y="student layer", scale=scale)
        charts.append({"title": name} | chart)
    rows: list[dict[str, str]] = [
        {"student layer": str(i), "most like teacher layer": str(best[i]), "CKA": f"{table.cka[i, best[i]]:.2f}"}
        | ({} if table.cosine is None else {"cosine": f"{table.cosine[i, best[i]]:.2f}"})
        for i in range(last + 1)
    ]
    title = "How alike the layers of student and teacher are"
    return Finding(
        analysis="similarity", title=title, sentence=sentence, spec=whole(title, about, stacked(*charts)),
        data={"cka": table.cka, "cosine": table.cosine, "texts": table.texts}, table=rows,
    )  # fmt: skip
