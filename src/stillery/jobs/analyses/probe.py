"""`stillery analyse probe`: a linear classifier on each layer of frozen models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from stillery.analyse.finding import Finding
from stillery.analyse.probe import Probe, features, probe
from stillery.analyse.states import stack_named
from stillery.errors import UserError
from stillery.jobs.analyses.settings import Request
from stillery.jobs.analyses.subjects import Inputs, on_same_data, read_examples
from stillery.pictures.charts import line_chart, whole

__all__ = ["finding", "run"]


def run(request: Request) -> Finding:
    """Fit a probe on the train split for every layer of each model, and score it on train and on `--split`."""
    own, found = request.own, {}
    if own.split == "train":
        raise UserError("--split train: the probe is fitted there; give the split to score it on, dev or test")
    for name, subject in on_same_data(request.subjects, request.data, needs_head=False).items():
        train = read_examples(subject, own, labels=True, head=False, split="train")
        dev = read_examples(subject, own, labels=True, head=False)
        if train.outputs not in ("classes", "score"):
            raise UserError(f"{name}: a probe reads one class or one score of a text, and this model predicts others")
        stack = stack_named(own.stack, subject.model)

        def vectors(inputs: Inputs, subject: Any = subject, stack: str = stack, name: str = name) -> Any:
            batches, total = inputs.batches(), len(inputs)
            return features(subject.model, batches, stack=stack, pool=own.pool, total=total, name=name)

        found[name] = probe(
            vectors(train), np.asarray(train.examples.labels), vectors(dev), np.asarray(dev.examples.labels),
            penalty=own.penalty, name=name,
        )  # fmt: skip
    measure = "R2" if train.outputs == "score" else "accuracy"
    about = [f"{dev.about['data']}: fitted on {len(train):,} train, scored on {len(dev):,} {own.split} examples"]
    settings = dev.about | {"train_examples": len(train)}
    return replace(finding(found, about, len(dev), measure, own.split), settings=settings)


def finding(found: Mapping[str, Probe], about: list[str], examples: int, measure: str, split: str) -> Finding:
    """Return the reading of one probe or several."""
    best = {name: int(np.argmax(one.dev)) for name, one in found.items()}
    said = "; ".join(
        f"in {name} layer {best[name]} ({one.dev[best[name]]:.1f}"
        + (", the last)" if best[name] == len(one.dev) - 1 else f"; the last {one.dev[-1]:.1f})")
        for name, one in found.items()
    )
    sentence = f"On {split} the labels are best read {said}: {measure} in percent of {examples:,} examples"
    if measure == "accuracy":
        # Half of the 95% interval of a share near the ones measured.
        share = np.mean([one.dev[-1] for one in found.values()]) / 100
        sentence += f", where differences below about {280 * np.sqrt(share * (1 - share) / examples):.1f} say little"
    rows = [
        {"x": layer, "y": float(value), "series": name, "dash": kind}
        for name, one in found.items()
        for kind, values in ((split, one.dev), ("train", one.train))
        for layer, value in enumerate(values)
    ]
    deepest = max(len(one.dev) for one in found.values())
    chart = line_chart(
        rows, x="layer (0: embedding)", y=f"{measure} of the probe (%)", series="", dashes="",
        x_axis={"values": list(range(deepest)), "format": "d"},
    )  # fmt: skip
    title = "What a linear probe reads from each layer"
    table = [
        {"model": name, "layer": str(layer), "train": f"{one.train[layer]:.1f}", split: f"{one.dev[layer]:.1f}"}
        for name, one in found.items()
        for layer in range(len(one.dev))
    ]
    return Finding(
        analysis="probe", title=title, sentence=f"{sentence}.", spec=whole(title, about, chart),
        data={name: {"train": one.train, split: one.dev} for name, one in found.items()}, table=table,
    )  # fmt: skip
