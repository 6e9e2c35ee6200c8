"""`stillery analyse forecast`: before training, how much the choice of layers may matter, and which start is better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stillery.analyse.angles import AngleTable, layer_angles
from stillery.analyse.finding import Finding
from stillery.analyse.states import stack_named
from stillery.data.tokens.batches import in_order
from stillery.errors import UserError
from stillery.evaluation.inference_mode import to_device
from stillery.jobs.analyses.settings import Request
from stillery.jobs.analyses.subjects import data_of
from stillery.jobs.calibration import spread
from stillery.jobs.config.settings import EXAMPLES, Distill, resolve
from stillery.jobs.distill import prepare_distill
from stillery.jobs.prepared import Prepared, tokenised
from stillery.jobs.student_start import Chosen
from stillery.models.option_words import AUTO
from stillery.pictures.charts import stacked, whole
from stillery.setting import option_name
from stillery.train.loop import accelerator_for
from stillery.train.start_trial import HELD_OUT, LEAST_STEPS, SHARE
from stillery.train.teacher import LiveTeacher

__all__ = ["Seen", "finding", "run"]

_TITLE = "Before training: does the choice of layers have much room?"


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """The angles at a student's layers with one start, and those with the teacher's tokens shuffled."""

    real: AngleTable
    null: AngleTable


def run(request: Request) -> Finding:
    """Look at the angles from the untrained student, and try its starts for a few dozen steps."""
    own, teacher = request.own, request.subjects[0]
    if own.layers is None:
        raise UserError("--layers is not given: how many layers should the student have?")
    if 0 < own.steps < LEAST_STEPS:
        raise UserError(f"--steps {own.steps}: fewer than {LEAST_STEPS} say nothing; give more, or 0 to leave it out")
    prepared = _prepared(teacher, request)
    assert prepared.teacher is not None
    to_device(prepared.teacher.model)
    read = getattr(prepared.read.splits, own.split)
    if read is None:
        raise UserError(f"--split {own.split}: {prepared.read.splits.source} has none; give another")
    few = read.take(spread(len(read), own.examples or len(read)))
    data = prepared.encoding.data(few, prepared.tokenizer, own.split)
    starts = prepared.starts.distinct() if prepared.starts is not None else {}
    students = {name: made[0].model for name, made in starts.items()} or {own.init: prepared.model}
    seen = {}
    for name, student in students.items():
        to_device(student)
        stack = stack_named(None, student, prepared.teacher.model)
        real, null = layer_angles(
            student, prepared.teacher.model, (data.batch(rows, pad_to=1) for rows in in_order(data.lengths, 32)),
            stack=stack, total=len(few), shuffles=(None, own.seed), description=f"angles from start {name}",
        )  # fmt: skip
        seen[str(name)] = Seen(real=real, null=null)
    chosen = _trial(prepared, own.steps, len(starts))
    about = f"{len(few):,} {own.split} examples of {prepared.read.splits.source}, {own.layers} layers"
    return replace(
        finding(seen, chosen, about),
        settings={"examples": len(few), "data": prepared.read.splits.source, "teacher": prepared.teacher.name},
    )


def _prepared(teacher: str, request: Request) -> Prepared:
    """Load and check everything, as for a run of `kd` with these starts."""
    own = request.own
    inputs = data_of(teacher, request.data)
    # How texts are read is inherited from the teacher's run, as in any run of distill.
    groups = (inputs.data, inputs.generation)
    values = {name: getattr(group, name, None) for name in EXAMPLES for group in groups if hasattr(group, name)}
    kept = {name: value for name, value in values.items() if value not in (None, False)} | request.data
    asked = resolve(
        Distill,
        {**kept, "teacher": teacher, "method": "kd", "layers": own.layers, "init": own.init or AUTO, "lr": own.lr,
         "seed": own.seed, "batch_size": own.batch_size},
        option_name,
    )  # fmt: skip
    return prepare_distill(asked)


def _trial(prepared: Prepared, steps: int, starts: int) -> Chosen | None:
    """Try the starts for this many steps each; None where there is only one, or no trial is wanted."""
    if not steps or starts < 2 or prepared.starts is None or prepared.teacher is None:
        return None
    run = prepared.run
    # A run so long that the trial has this many steps.
    total = math.ceil((steps * (starts + 0.5) + HELD_OUT * (starts / 3 + 0.5)) / SHARE) + 1
    return prepared.starts.choose(
        prepared.model, LiveTeacher(prepared.teacher.model, prepared.drop_start), tokenised(prepared).train,
        kind=prepared.kind.outputs(prepared.read), labelled=not run.data.unlabelled, training=run.training, steps=total,
        accelerator=accelerator_for("fp32"),
    )  # fmt: skip


def finding(seen: Mapping[str, Seen], chosen: Chosen | None, about: str) -> Finding:
    """Return the reading of the angles by start, and of the trial."""
    acute = {name: 100 * one.real.choices[1].mean() for name, one in seen.items()}
    null = {name: 100 * one.null.choices[1].mean() for name, one in seen.items()}
    said = ", ".join(
        f"{acute[name]:.0f}% of tokens with start {name} ({null[name]:.0f}% where tokens are shuffled)" for name in seen
    )
    sentence = f"Seen from the untrained student, the angle between two teacher layers is acute for {said}"
    if all(acute[name] <= null[name] + 1 for name in seen):
        sentence += "; unrelated tokens give no fewer, so this says little about the choice of layers"
    if chosen is not None and chosen.losses:
        order = sorted(chosen.losses, key=lambda name: chosen.losses[name])
        losses = ", ".join(f"{name} {chosen.losses[name]:.4f}" for name in order)
        sentence += f"; after {chosen.steps} steps from each start {order[0]} has the lowest held-out loss ({losses})"
    rows = [
        {"start": f"start {name}", "layer": str(layer), "tokens": kind, "value": 100 * float(share)}
        for name, one in seen.items()
        for kind, of in (("same token", one.real), ("shuffled tokens", one.null))
        for layer, share in zip(of.students, of.choices[1], strict=True)
    ]
    table = [
        {"start": name, "student layer": str(layer), "acute": f"{100 * real:.1f}%", "shuffled": f"{100 * other:.1f}%",
         "mean cosine": f"{cosine:.3f}"}
        for name, one in seen.items()
        for layer, real, other, cosine in zip(
            one.real.students, one.real.choices[1], one.null.choices[1], one.real.choices[0], strict=True
        )
    ]  # fmt: skip
    charts = [_angles_chart(rows)]
    if chosen is not None and chosen.losses:
        charts.append(_trial_chart(chosen))
    data: dict[str, Any] = {
        "starts": {
            name: {"student_layers": one.real.students, "acute": one.real.choices[1], "mean": one.real.choices[0],
                   "acute_shuffled": one.null.choices[1], "mean_shuffled": one.null.choices[0]}
            for name, one in seen.items()
        },
        "trial": None if chosen is None else {"steps": chosen.steps, "held_out_loss": dict(chosen.losses)},
    }  # fmt: skip
    return Finding(
        analysis="forecast", title=_TITLE, sentence=f"{sentence}.", data=data, table=table,
        spec=whole(_TITLE, about, stacked(*charts)),
    )  # fmt: skip


def _angles_chart(rows: list[dict[str, Any]]) -> dict[str, Any]:
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    starts = list(dict.fromkeys(row["start"] for row in rows))
    colour = {"field": "tokens", "type": "nominal", "title": None, "legend": {"orient": "bottom"},
              "sort": ["same token", "shuffled tokens"]}  # fmt: skip
    spec = {
        "width": 190, "height": 150, "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {"field": "layer", "type": "ordinal", "sort": layers, "title": "student layer",
                  "axis": {"labelAngle": 0}},
            "y": {"field": "value", "type": "quantitative", "title": "% acute", "scale": {"domain": [0, 100]}},
            "color": colour,
        },
    }  # fmt: skip
    header = {"title": None, "labelFontWeight": 600}
    facet = {"field": "start", "type": "nominal", "sort": starts, "header": header}
    return {
        "title": "Share of acute angles, all pairs of teacher layers", "data": {"values": rows}, "facet": facet,
        "columns": 2, "spec": spec,
    }  # fmt: skip


def _trial_chart(chosen: Chosen) -> dict[str, Any]:
    rows = [{"start": name, "loss": loss} for name, loss in chosen.losses.items()]
    return {
        "title": f"Held-out loss after {chosen.steps} steps", "data": {"values": rows}, "width": 380,
        "height": {"step": 24}, "mark": {"type": "bar", "color": "#0072B2", "height": 14},
        "encoding": {
            "y": {"field": "start", "type": "nominal", "sort": None, "title": None},
            "x": {"field": "loss", "type": "quantitative", "title": "loss", "scale": {"zero": True}},
        },
    }  # fmt: skip
