"""`stillery analyse layer-divergence`: how different a model's layers are from each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stillery.analyse.finding import Finding
from stillery.analyse.layer_divergence import layer_divergence
from stillery.analyse.states import stack_named
from stillery.jobs.analyses.settings import Request
from stillery.jobs.analyses.subjects import labelled, names_of, read_examples
from stillery.pictures.charts import Scale, heat_map, whole

__all__ = ["run"]

Array = NDArray[np.float64]


def run(request: Request) -> Finding:
    """Measure the divergence of the layers of each model on its own data."""
    own, maps, about, read = request.own, {}, [], {}
    for name, model in zip(names_of(request.subjects), request.subjects, strict=True):
        subject = labelled(model, request.data, needs_head=False)
        inputs = read_examples(subject, own)
        stack = stack_named(own.stack, subject.model)
        pool = own.pool or ("mean" if stack == "decoder" else "first")
        maps[name] = layer_divergence(subject.model, inputs.batches(), stack=stack, pool=pool, total=len(inputs))
        said = f"{name}: {inputs.said()}, {'first token' if pool == 'first' else 'mean of the tokens'}"
        read[name] = inputs.about
        about.append(said if len(request.subjects) > 1 else said.partition(": ")[2])
    return replace(finding(maps, about), settings={"data": read})


def finding(maps: Mapping[str, Array], about: Sequence[str]) -> Finding:
    """Return the reading of one divergence map or several."""
    rows = [
        {"panel": name, "x": str(j), "y": str(i), "value": float(value)}
        for name, found in maps.items()
        for i, row in enumerate(found, 1)
        for j, value in enumerate(row, 1)
    ]
    most = max(float(found.max()) for found in maps.values())
    parts, table = [], []
    for name, found in maps.items():
        layers = len(found)
        near = found[np.abs(np.subtract.outer(range(layers), range(layers))) == 1]
        to_last = found[:-1, -1]
        if layers < 2:
            parts.append(f"{name} has one layer only")
            continue
        far = float(found[0, -1])
        parts.append(
            f"in {name} neighbouring layers differ by {near.mean():.3g} nats on average, the first and the last by "
            f"{far:.3g}{', the largest of all' if far >= found.max() else ''}"
        )
        table += [
            {"model": name, "layer": str(layer), "KL to the next layer": f"{found[layer - 1, layer]:.3g}",
             "KL to the last layer": f"{to_last[layer - 1]:.3g}"}
            for layer in range(1, layers)
        ]  # fmt: skip
    sentence = "; ".join(parts)
    digits = ".2f" if most >= 0.1 else ".1e"
    scale = Scale(title="KL(p, q), nats", low=0.0, high=most, format=digits)
    chart = heat_map(rows, x="layer q", y="layer p", scale=scale, panels=None if len(maps) == 1 else "model")
    title = "How different the layers of a model are"
    return Finding(
        analysis="layer-divergence", title=title, sentence=f"{sentence[0].upper()}{sentence[1:]}.",
        spec=whole(title, about, chart), data={"divergence": dict(maps)}, table=table,
    )  # fmt: skip
