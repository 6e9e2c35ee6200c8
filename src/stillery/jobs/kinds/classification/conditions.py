"""Low-resource and noisy training splits of classifiers: few samples, wrong labels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from stillery.data.schema.examples import Examples, Splits
from stillery.data.schema.labels import Labels
from stillery.data.schema.subsets import draw_samples, flip_labels
from stillery.errors import UserError
from stillery.jobs.config.settings import ConditionSettings
from stillery.jobs.kinds.base import Read

__all__ = ["under"]


def under(condition: ConditionSettings, read: Read) -> tuple[Read, dict[str, Any]]:
    """Return the splits with a subsampled, label-flipped training split, and a record of it, by example id.

    Subsampling comes first, then the flips. Dev and test are never touched.
    """
    parts: Splits = read.splits
    train, record, notes = parts.train, {}, [parts.note] if parts.note else []
    whole = len(train)
    if condition.samples is not None:
        if condition.samples > whole:
            raise UserError(f"--samples {condition.samples}: the training split has only {whole} examples")
        train = train.take(draw_samples(whole, condition.samples, condition.sample_seed))
        record["samples"] = {"of": whole, "seed": condition.sample_seed, "ids": list(train.ids)}
        notes.append(f"{len(train)} of {whole} training examples drawn with seed {condition.sample_seed}")
    if condition.label_noise is not None:
        train, flipped = _flipped(train, parts.label_space, condition.label_noise, condition.noise_seed)
        record["label_noise"] = {"rate": condition.label_noise, "seed": condition.noise_seed, "flipped": flipped}
        notes.append(f"{len(flipped)} of {len(train)} training labels flipped with seed {condition.noise_seed}")
    if record and train.labels is not None and len(np.unique(train.labels, axis=0)) < 2:
        raise UserError(f"--samples {len(train)}: all that were drawn have one label; raise it or change --sample-seed")
    return dataclasses.replace(read, splits=dataclasses.replace(parts, train=train, note="; ".join(notes))), record


def _flipped(train: Examples, labels: Labels, rate: float, seed: int) -> tuple[Examples, list[dict[str, str]]]:
    """Return the examples with some labels flipped, and a record of each flip: id, old label and new label."""
    if labels.regression or labels.multi:
        what = "scores" if labels.regression else "texts with several labels"
        raise UserError(f"--label-noise: {what} cannot be flipped to another class; leave it out")
    if train.labels is None:
        raise UserError("--label-noise: the training split has no labels to flip; leave it out")
    noisy, rows = flip_labels(train.labels, labels.count, rate, seed)
    record = [
        {"id": train.ids[row], "from": labels.names[train.labels[row]], "to": labels.names[noisy[row]]} for row in rows
    ]
    return dataclasses.replace(train, labels=noisy), record
