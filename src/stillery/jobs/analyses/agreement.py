"""`stillery analyse agreement`: where student and teacher disagree, from the predictions that a run has written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stillery.analyse.agreement import Reliability, Share, reliability, share, shares_by
from stillery.analyse.finding import Finding
from stillery.errors import UserError
from stillery.jobs.analyses.settings import Request
from stillery.jobs.analyses.subjects import data_of
from stillery.jobs.comparison.models import read_run, run_folder
from stillery.jobs.kinds.find import kind_of_model
from stillery.pictures.charts import line_chart, stacked, whole

__all__ = ["finding", "run"]

_TITLE = "Where the student disagrees with its teacher"
_GROUPS = 4


def run(request: Request) -> Finding:
    """Compare the recorded predictions of a run with its teacher's."""
    own, folder = request.own, run_folder(request.subjects[0])
    model = read_run(str(folder))
    table = pq.read_table(folder / "predictions.parquet")
    if not {"teacher_probabilities", "label"} <= set(table.column_names) or not hasattr(
        table.schema.field("probabilities").type, "value_type"
    ):
        raise UserError(
            f"{folder}: agreement reads the probabilities of a class by student and teacher, and this run has none; "
            "give a run of stillery distill that classifies texts with one class each"
        )
    columns = {name: table[name].to_pylist() for name in table.column_names}
    if isinstance(columns["label"][0], list) or len(columns["probabilities"][0]) < 2 or None in columns["label"]:
        raise UserError(f"{folder}: agreement is for texts with one class each, and labels that are known")
    about = f"{len(table):,} examples: {model.scored_on}"
    return finding(columns, _texts(folder, columns["id"]), about, bins=own.bins, most=own.most)


def _texts(folder: Path, ids: Sequence[str]) -> list[str | None]:
    """Return the texts of these examples from the run's data; None each where the data is not there any more."""
    try:
        inputs = data_of(str(folder), {})
        kind = kind_of_model(str(folder), inputs.data)
        splits = kind.read(inputs, None).splits
    except UserError:
        return [None] * len(ids)
    known: dict[str, str] = {}
    for one in (splits.test, splits.dev):
        if one is None:
            continue
        parts = [one[role].to_pylist() for role in ("text", "text_pair") if one.get(role) is not None]
        known |= {name: " | ".join(texts) for name, *texts in zip(one.ids, *parts, strict=True)}
    return [known.get(name) for name in ids]


def finding(
    columns: Mapping[str, Sequence[Any]], texts: Sequence[str | None], about: str, *, bins: int = 10, most: int = 50
) -> Finding:
    """Return the reading of the predictions of a student and its teacher."""
    labels, ours, theirs = (np.array(columns[name]) for name in ("label", "prediction", "teacher_prediction"))
    sure, teacher_sure = (
        np.array(columns[name], dtype=np.float64).max(axis=1) for name in ("probabilities", "teacher_probabilities")
    )
    apart = ours != theirs
    curves = {
        "student": reliability(sure, ours == labels, bins), "teacher": reliability(teacher_sure, theirs == labels, bins)
    }  # fmt: skip
    groups = _groups(labels, teacher_sure, texts)
    shares = {what: shares_by(among, apart) for what, among in groups.items()}
    whole_share = share("all", apart)
    right = [int((apart & (one == labels)).sum()) for one in (ours, theirs)]
    by_confidence = shares["teacher's confidence"]
    least, surest = by_confidence[0], by_confidence[-1]
    sentence = (
        f"Student and teacher disagree on {whole_share.count} of {whole_share.examples} examples "
        f"({100 * whole_share.value:.1f}%), on {100 * least.value:.1f}% of those the teacher is least sure of and "
        f"{100 * surest.value:.1f}% of the surest quarter; the student is right in {right[0]} of them, the teacher in "
        f"{right[1]}; expected calibration error {curves['student'].error:.3f} against {curves['teacher'].error:.3f}."
    )
    order = np.argsort(-np.minimum(sure, teacher_sure), kind="stable")
    listed = [int(row) for row in order if apart[row]][:most]
    examples = [
        {"id": columns["id"][row], "text": texts[row], "label": str(labels[row]), "student": str(ours[row]),
         "student_confidence": sure[row], "teacher": str(theirs[row]), "teacher_confidence": teacher_sure[row]}
        for row in listed
    ]  # fmt: skip
    data = {
        "disagreements": whole_share.count, "examples": whole_share.examples, "student_right": right[0],
        "teacher_right": right[1], "listed": examples,
        "reliability": {
            name: {"confidence": one.confidence, "accuracy": one.accuracy, "examples": one.examples, "ece": one.error}
            for name, one in curves.items()
        },
        "by": {
            what: [{"group": one.name, "disagree": one.count, "examples": one.examples, "low": one.low,
                    "high": one.high} for one in some]
            for what, some in shares.items()
        },
    }  # fmt: skip
    table = [
        {"examples": f"{what}: {one.name}", "disagree": f"{one.count} of {one.examples}",
         "share (95%)": f"{100 * one.value:.1f}% ({100 * one.low:.1f} to {100 * one.high:.1f})"}
        for what, some in {"all": [whole_share], **shares}.items()
        for one in some
    ]  # fmt: skip
    chart = stacked(_shares_chart(shares), _reliability_chart(curves))
    return Finding(
        analysis="agreement", title=_TITLE, sentence=sentence, spec=whole(_TITLE, about, chart), data=data, table=table
    )


def _groups(
    labels: NDArray[Any], teacher_sure: NDArray[np.float64], texts: Sequence[str | None]
) -> dict[str, dict[str, NDArray[np.bool_]]]:
    """Return groups of examples: by the teacher's confidence, by length where texts are known, by label."""
    found = {"teacher's confidence": _quarters(teacher_sure, "{:.2f} to {:.2f}")}
    if all(text is not None for text in texts):
        words = np.array([len((text or "").split()) for text in texts], dtype=np.float64)
        found["words"] = _quarters(words, "{:.0f} to {:.0f}")
    found["label"] = {str(name): labels == name for name in sorted(set(labels.tolist()))}
    return found


def _quarters(values: NDArray[np.float64], shape: str) -> dict[str, NDArray[np.bool_]]:
    """Return four groups of about the same size, from small to large; equal values stay together."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _GROUPS + 1)[1:-1]))
    place = np.searchsorted(edges, values, side="right")
    groups = [place == one for one in range(len(edges) + 1)]
    return {shape.format(values[one].min(), values[one].max()): one for one in groups if one.any()}


def _shares_chart(shares: Mapping[str, Sequence[Share]]) -> dict[str, Any]:
    rows = [
        {"group": one.name, "by": f"by {what}", "value": 100 * one.value, "low": 100 * one.low, "high": 100 * one.high}
        for what, some in shares.items()
        for one in some
    ]
    panels = list(dict.fromkeys(row["by"] for row in rows))
    high = {"field": "high", "type": "quantitative", "title": "% disagree (95% interval)", "scale": {"zero": True}}
    group = {"field": "group", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 150}}
    spec = {
        "width": 360, "height": {"step": 22},
        "layer": [
            {"mark": {"type": "rule", "strokeWidth": 2},
             "encoding": {"y": group, "x": {**high, "field": "low"}, "x2": {"field": "high"}}},
            {"mark": {"type": "point", "filled": True, "size": 70, "color": "#0072B2", "opacity": 1},
             "encoding": {"y": group, "x": {**high, "field": "value"}}},
        ],
    }  # fmt: skip
    return {
        "data": {"values": rows}, "spec": spec, "columns": 1, "spacing": 10, "resolve": {"scale": {"y": "independent"}},
        "facet": {"field": "by", "type": "nominal", "sort": panels,
                  "header": {"title": None, "labelAnchor": "start", "labelFontWeight": 600}},
    }  # fmt: skip


def _reliability_chart(curves: Mapping[str, Reliability]) -> dict[str, Any]:
    rows = [
        {"x": float(one.confidence[place]), "y": float(one.accuracy[place]), "series": name}
        for name, one in curves.items()
        for place in range(len(one.examples))
        if one.examples[place]
    ]
    least = min(float(np.nanmin(one.confidence)) for one in curves.values())
    ideal = [{"x": low, "y": low, "series": "perfectly calibrated"} for low in (least, 1.0)]
    chart = line_chart(
        [*rows, *ideal], x="confidence", y="share that is right", series="", y_scale={"domain": [0, 1]},
        x_axis={"format": ".2f", "tickCount": 6},
    )  # fmt: skip
    chart["height"] = 190
    return {"title": "Confidence and being right"} | chart
