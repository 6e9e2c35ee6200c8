"""`stillery analyse flatness`: loss against noise in the embedding output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from stillery.analyse.finding import Finding
from stillery.analyse.flatness import Flatness, flatness
from stillery.jobs.analyses.settings import Request
from stillery.jobs.analyses.subjects import on_same_data, read_examples
from stillery.pictures.charts import line_chart, whole

__all__ = ["finding", "run"]

_TITLE = "Loss under noise in the embedding output"


def run(request: Request) -> Finding:
    """Measure the loss of each model on the same examples under growing noise."""
    own, found = request.own, {}
    radii = np.linspace(0, own.most, own.radii)
    for name, subject in on_same_data(request.subjects, request.data).items():
        inputs = read_examples(subject, own, labels=True)
        assert inputs.outputs is not None
        found[name] = flatness(
            subject.model, inputs.batches, inputs.outputs, list(radii), draws=own.draws, seed=own.seed,
            description=f"flatness {name}",
        )  # fmt: skip
    return replace(finding(found, inputs.said()), settings=inputs.about)


def finding(found: Mapping[str, Flatness], about: str) -> Finding:
    """Return the reading of one curve or several."""
    rises = {name: one.losses[-1] - one.losses[:, 0][0] for name, one in found.items()}
    order = sorted(rises, key=lambda name: rises[name].mean())
    most = next(iter(found.values())).radii[-1]
    draws = next(iter(found.values())).losses.shape[1]
    said = ", ".join(f"{name} {rises[name].mean():+.3f}" for name in order)
    sentence = f"Noise of {most:g} times the size of the embedding output changes the loss by {said}"
    if len(order) > 1:
        apart = rises[order[0]].max() < rises[order[1]].min()
        sentence += (
            f"; {order[0]} rises least in every one of {draws} draws."
            if apart
            else f"; the {draws} draws of {order[0]} and {order[1]} overlap, so which is flatter stays open."
        )
    else:
        sentence += f" (mean of {draws} draws)."
    rows = [
        {"x": float(radius), "y": float(losses.mean()), "low": float(losses.min()), "high": float(losses.max()),
         "series": name}
        for name, one in found.items()
        for radius, losses in zip(one.radii, one.losses, strict=True)
    ]  # fmt: skip
    chart = line_chart(
        rows,
        x="radius of the noise (share of the embedding output's size)",
        y="loss",
        series="",
        band=True,
        x_axis={"values": [float(radius) for radius in next(iter(found.values())).radii], "format": ".1f"},
    )
    table = [
        {"model": name, "loss": f"{one.losses[0, 0]:.4f}", f"at radius {most:g}": f"{one.losses[-1].mean():.4f}",
         "lowest": f"{one.losses[-1].min():.4f}", "highest": f"{one.losses[-1].max():.4f}"}
        for name, one in found.items()
    ]  # fmt: skip
    data = {name: {"radii": one.radii, "losses": one.losses, "embedding_size": one.size} for name, one in found.items()}
    lines = [about, f"line: mean of {draws} draws, band: lowest to highest"]
    return Finding(
        analysis="flatness", title=_TITLE, sentence=sentence, spec=whole(_TITLE, lines, chart), data=data, table=table
    )
