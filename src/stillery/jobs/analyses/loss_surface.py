"""`stillery analyse loss-surface`: loss on the plane through two students and their common start."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import zoom
from torch import Tensor

from stillery.analyse.finding import Finding
from stillery.analyse.loss_of import mean_loss
from stillery.analyse.loss_surface import Plane, Surface, loss_surface
from stillery.errors import UserError
from stillery.jobs.analyses.settings import Request
from stillery.jobs.analyses.snapshots import read_snapshots, weights_at
from stillery.jobs.analyses.subjects import Subject, labelled, names_of, on_same_data, read_examples
from stillery.jobs.config.run_file import ask, run_of
from stillery.jobs.config.settings import Distill
from stillery.models.model_folder import run_in
from stillery.pictures.charts import whole

__all__ = ["finding", "run", "starting_weights"]

_FINE = 44
"""Cells along each side of the picture, interpolated linearly between the points of the grid."""

_SHAPES = ("teacher", "init", "init_from", "layers", "encoder_layers", "decoder_layers", "copy_layers", "width",
           "heads", "head", "reuse", "projector", "seed")  # fmt: skip
"""The settings that decide where a student starts."""

Axis = NDArray[np.float64]


def run(request: Request) -> Finding:
    """Measure the loss on the plane through a start and two models."""
    own, named = request.own, list(request.subjects)
    subjects = on_same_data(named[-2:], request.data)
    first, second = subjects.values()
    start = starting_weights(named[-2:]) if len(named) == 2 else _weights(labelled(named[0], request.data))
    plane = Plane(start, _weights(first), _weights(second))
    inputs = read_examples(first, own, labels=True)
    outputs = inputs.outputs
    assert outputs is not None
    surface = loss_surface(
        first.model, plane, lambda model: mean_loss(model, inputs.batches(), outputs), points=own.grid,
        margin=own.margin,
    )  # fmt: skip
    paths = {
        name: [(step, *plane.project(weights_at(file, dict(start)))) for step, file in read_snapshots(one.name).items()]
        for name, one in subjects.items()
    }
    names = ["start" if len(named) == 2 else names_of(named)[0], *subjects]
    return replace(finding(surface, names, paths, inputs.said()), settings=inputs.about)


def _weights(subject: Subject) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in subject.model.state_dict().items()}


def starting_weights(runs: Sequence[str]) -> dict[str, Tensor]:
    """Return the weights that two runs started from: those of a snapshot, else made again from the run's settings."""
    values = [run_of(one) for one in runs]
    for one, of in zip(runs, values, strict=True):
        if of.get("job") != "distill":
            raise UserError(f"{one} is no run of stillery distill, so its start is not known: name the start first")
    apart = [name for name in _SHAPES if values[0].get(name) != values[1].get(name)]
    if apart:
        raise UserError(
            f"{runs[0]} and {runs[1]} have no common start (they differ in {', '.join(apart)}): name a start first"
        )
    for one in runs:
        snapshots = read_snapshots(one)
        if 0 in snapshots:
            model = labelled(one, {}).model
            return _complete(weights_at(snapshots[0], dict(model.state_dict())), model.state_dict())
    from stillery.jobs.distill import prepare_distill

    folder = run_in(runs[0])
    assert folder is not None
    prepared = prepare_distill(ask(Distill, {}, folder / "run.toml"))
    return {name: tensor.detach().clone() for name, tensor in prepared.model.state_dict().items()}


def _complete(found: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a snapshot under every name of the model: a tied tensor is saved under one of them."""
    by_place = {own[name].data_ptr(): tensor for name, tensor in found.items()}
    return {name: by_place[tensor.data_ptr()] for name, tensor in own.items()}


def finding(
    surface: Surface, names: Sequence[str], paths: Mapping[str, Sequence[tuple[int, float, float, float]]], about: str
) -> Finding:
    """Return the reading of a surface through models of these names: the start, the first, the second."""
    start, first, second = surface.corners
    barrier = (
        f"a barrier of {surface.barrier:.3f} above the higher of the two"
        if surface.barrier > 0
        else "no point above the higher of the two"
    )
    sentence = (
        f"The loss is {start:.3f} at the start, {first:.3f} at {names[1]} and {second:.3f} at {names[2]}; the straight "
        f"line between the two students, at {len(surface.between)} points, has {barrier}."
    )
    title = f"Loss between the start, {names[1]} and {names[2]}"
    lines = [about, f"horizontal: from the start (0, 0) towards {names[1]}; vertical: towards {names[2]}"]
    away = [out for path in paths.values() for _, _, _, out in path]
    if away:
        lines.append(f"dots: snapshots, projected; up to {100 * max(away):.0f}% of their way leads out of the plane")
    table = [
        {"model": name, "a": str(a), "b": str(b), "loss": f"{loss:.4f}"}
        for name, (a, b), loss in zip(names, ((0, 0), (1, 0), (0, 1)), surface.corners, strict=True)
    ]
    data = {
        "a": surface.a, "b": surface.b, "losses": surface.losses, "corners": surface.corners,
        "between": surface.between, "barrier": surface.barrier,
        "paths": {
            name: [dict(zip(("step", "a", "b", "out_of_plane"), place, strict=True)) for place in path]
            for name, path in paths.items()
        },
    }  # fmt: skip
    return Finding(
        analysis="loss-surface", title=title, sentence=sentence, table=table, data=data,
        spec=whole(title, lines, _chart(surface, names, paths)),
    )  # fmt: skip


def _chart(
    surface: Surface, names: Sequence[str], paths: Mapping[str, Sequence[tuple[int, float, float, float]]]
) -> dict[str, Any]:
    """Return filled contours of the loss, the three models, and the paths of their snapshots."""
    fine = zoom(surface.losses, max(_FINE, len(surface.a)) / len(surface.a), order=1)
    a, b = (np.linspace(axis[0], axis[-1], len(fine)) for axis in (surface.a, surface.b))
    low, high = float(surface.losses.min()), float(surface.losses.max())
    edges = [float(f"{edge:.3g}") for edge in np.linspace(low, high, 11)[1:-1]]
    cells = _bands(fine, a, b, edges)
    scale = {"type": "threshold", "domain": edges, "scheme": "cividis", "reverse": True}
    axis = {"grid": False}
    across = {"field": "a", "type": "quantitative", "title": f"towards {names[1]}", "axis": axis,
              "scale": {"domain": [float(a[0]), float(a[-1])], "nice": False}}  # fmt: skip
    down = {"field": "b", "type": "quantitative", "title": f"towards {names[2]}", "axis": axis,
            "scale": {"domain": [float(b[0]), float(b[-1])], "nice": False}}  # fmt: skip
    colour = {"field": "loss", "type": "quantitative", "scale": scale, "legend": {"title": "loss", "format": ".2f"}}
    layers: list[dict[str, Any]] = [
        {"data": {"values": cells}, "mark": {"type": "rect", "strokeWidth": 0.5},
         "encoding": {"x": across, "x2": {"field": "a2"}, "y": down, "y2": {"field": "b2"}, "color": colour,
                      "stroke": {"field": "loss", "type": "quantitative", "scale": scale, "legend": None}}},
    ]  # fmt: skip
    walked = [{"a": x, "b": y, "step": step, "model": name} for name, path in paths.items() for step, x, y, _ in path]
    place = {"x": {"field": "a", "type": "quantitative"}, "y": {"field": "b", "type": "quantitative"}}
    if walked:
        order = {"order": {"field": "step"}, "detail": {"field": "model"}}
        white = {"type": "line", "color": "#ffffff", "strokeWidth": 4, "opacity": 0.7}
        layers += [
            {"data": {"values": walked}, "mark": white, "encoding": place | order},
            {"data": {"values": walked}, "encoding": place | order,
             "mark": {"type": "line", "color": "#111111", "strokeWidth": 1.5,
                      "point": {"color": "#111111", "filled": True, "size": 18}}},
        ]  # fmt: skip
    corners = [{"a": x, "b": y, "model": name} for name, (x, y) in zip(names, ((0, 0), (1, 0), (0, 1)), strict=True)]
    layers += [
        {"data": {"values": corners}, "encoding": place,
         "mark": {"type": "point", "shape": "diamond", "size": 110, "filled": True, "color": "#D55E00",
                  "stroke": "#ffffff", "opacity": 1}},
        {"data": {"values": corners}, "encoding": place | {"text": {"field": "model"}},
         "mark": {"type": "text", "dy": -14, "fontSize": 12, "fontWeight": 600, "color": "#111111",
                  "stroke": "#ffffff", "strokeWidth": 3, "strokeOpacity": 0.85}},
        {"data": {"values": corners}, "encoding": place | {"text": {"field": "model"}},
         "mark": {"type": "text", "dy": -14, "fontSize": 12, "fontWeight": 600, "color": "#111111"}},
    ]  # fmt: skip
    return {"width": 340, "height": 320, "layer": layers, "resolve": {"scale": {"color": "independent"}}}


def _bands(losses: NDArray[np.float64], a: Axis, b: Axis, edges: Sequence[float]) -> list[dict[str, float]]:
    """Return rectangles of one colour, row by row: far fewer than cells."""
    half = [(axis[1] - axis[0]) / 2 for axis in (a, b)]
    found = []
    for y, row in zip(b, losses, strict=True):
        band = np.digitize(row, edges)
        starts = [0, *(np.flatnonzero(np.diff(band)) + 1), len(row)]
        for first, after in itertools.pairwise(starts):
            found.append(
                {"a": round(float(a[first] - half[0]), 4), "a2": round(float(a[after - 1] + half[0]), 4),
                 "b": round(float(y - half[1]), 4), "b2": round(float(y + half[1]), 4),
                 "loss": float(f"{row[first]:.6g}")}
            )  # fmt: skip
    return found
