"""`stillery analyse projections`: rank and alignment of trained projections."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stillery.analyse.finding import Finding
from stillery.analyse.projections import map_shape, maps_cosine
from stillery.jobs.analyses.run_projections import TrainedMap, trained_maps
from stillery.jobs.analyses.settings import Request
from stillery.jobs.analyses.subjects import names_of
from stillery.lines import listed
from stillery.pictures.charts import line_chart, whole

__all__ = ["finding", "run"]

_TITLE = "How much of its width each trained projection uses"


def run(request: Request) -> Finding:
    """Look at the trained projections of each run."""
    maps = [
        (name if len(request.subjects) > 1 else "", one)
        for name, place in zip(names_of(request.subjects), request.subjects, strict=True)
        for one in trained_maps(place)
    ]
    return finding(maps)


def finding(maps: Sequence[tuple[str, TrainedMap]]) -> Finding:
    """Return the reading of trained maps, each with the name of its run (empty where there is one run)."""
    shapes = [map_shape(_array(one)) for _, one in maps]
    names = [_name(run, one) for run, one in maps]
    aligned = [_alignment(run, one, maps) for run, one in maps]
    collapsed = [name for name, shape in zip(names, shapes, strict=True) if shape.collapsed]
    least = min(range(len(shapes)), key=lambda place: shapes[place].rank / shapes[place].random)
    of_least = (
        f"the least effective rank is {shapes[least].rank:.0f} of {shapes[least].possible} ({names[least]}; a random "
        f"matrix of that shape has {shapes[least].random:.0f})"
    )
    sentence = (
        f"{len(collapsed)} of {len(maps)} trained projections have an effective rank below a tenth of a random "
        f"matrix's ({listed(collapsed, 3)}); {of_least}."
        if collapsed
        else f"None of {len(maps)} trained projections has collapsed: {of_least}."
    )
    rows = [
        {"x": place + 1, "y": float(max(value / max(shape.singular[0], 1e-30), 1e-6)), "series": name}
        for name, shape in zip(names, shapes, strict=True)
        for place, value in enumerate(shape.singular)
    ]
    chart = line_chart(
        rows, x="singular value, largest first", y="share of the largest", series="", points=False,
        y_scale={"type": "log"}, x_axis={"format": "d", "tickCount": 8},
    )  # fmt: skip
    table = [
        {"projection": name, "shape": "x".join(map(str, one.weight.shape)),
         "effective rank": f"{shape.rank:.0f} of {shape.possible}", "random": f"{shape.random:.0f}",
         "alignment": "-" if align is None else f"{align[1]:+.2f} ({align[0]})"}
        for (_, one), name, shape, align in zip(maps, names, shapes, aligned, strict=True)
    ]  # fmt: skip
    data = {
        name: {"match": one.match, "side": one.side, "student_layers": one.student_layers,
               "teacher_layers": one.teacher_layers, "effective_rank": shape.rank, "random_rank": shape.random,
               "singular": shape.singular, "collapsed": shape.collapsed,
               "alignment": None if align is None else {"with": align[0], "cosine": align[1]}}
        for (_, one), name, shape, align in zip(maps, names, shapes, aligned, strict=True)
    }  # fmt: skip
    about = "singular values of each map; one that falls steeply lets little of the layer through"
    return Finding(
        analysis="projections", title=_TITLE, sentence=sentence, spec=whole(_TITLE, about, chart), data=data,
        table=table,
    )  # fmt: skip


def _array(one: TrainedMap) -> NDArray[np.float64]:
    return one.weight.double().numpy()


def _name(run: str, one: TrainedMap) -> str:
    layers = ", ".join(map(str, one.student_layers if one.side == "student" else one.teacher_layers))
    stack = f" of the {one.stack}" if one.stack is not None else ""
    what = f"{one.match}: {one.side} layer{'s' if ',' in layers else ''} {layers}{stack}"
    return f"{run} {what}".strip()


def _alignment(run: str, one: TrainedMap, maps: Sequence[tuple[str, TrainedMap]]) -> tuple[str, float] | None:
    """Return what a map can be compared with, and the cosine: the other side's map of its pair, else the identity."""
    for name, other in maps:
        if (name, other.match, other.slot) == (run, one.match, one.slot) and other.side != one.side:
            cosine = maps_cosine(_array(one), _array(other))
            return None if cosine is None else (f"the {other.side}'s map", cosine)
    weight = _array(one)
    if weight.shape[0] != weight.shape[1]:
        return None
    return "the identity", float(np.trace(weight) / max(np.linalg.norm(weight) * len(weight) ** 0.5, 1e-300))
