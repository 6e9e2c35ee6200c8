"""Checkpoint selection metric and class weights of classifiers."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from stillery.data.schema.examples import Splits
from stillery.errors import UserError
from stillery.evaluation.metrics import metric_names
from stillery.evaluation.ranking_report import ranking_names
from stillery.jobs.kinds.base import Read
from stillery.train.settings import Training

__all__ = ["class_weights", "measured"]


def measured(read: Read, training: Training) -> Read:
    """Return the splits with the requested metric first; class weights are refused where they do not apply."""
    parts: Splits = read.splits
    labels = parts.label_space
    if training.class_weights is not None and labels.kind != "classes":
        what = "the labels are scores" if labels.regression else "a text may have several labels"
        raise UserError(f"--class-weights is for one class per text, and {what}; leave it out")
    if training.class_weights is not None and parts.train.labels is None:
        raise UserError("--class-weights: the training split has no labels to count; leave it out")
    if training.metric is None:
        return read
    if read.scored["dev"].gold is None:
        raise UserError(
            f"--metric {training.metric}: the dev split has no labels, so agreement with the teacher decides; leave it "
            "out"
        )
    scored = {}
    for name, one in read.scored.items():
        names = metric_names if one.examples.get("query") is None else ranking_names
        metrics = names(labels, [training.metric]) + names(labels, one.metrics)
        scored[name] = dataclasses.replace(one, metrics=tuple(dict.fromkeys(metrics)))
    return dataclasses.replace(read, scored=scored)


def class_weights(read: Read, training: Training) -> torch.Tensor | None:
    """Return the weight n / (k n_c) of each class: n training examples, k classes among them, n_c of the class.

    The mean weight over the training examples is 1. A class without examples has weight 1, which is never used.
    """
    if training.class_weights is None:
        return None
    parts: Splits = read.splits
    assert parts.train.labels is not None
    counts = np.bincount(parts.train.labels, minlength=parts.label_space.count)
    weights = np.ones(len(counts))
    there = counts > 0
    weights[there] = counts.sum() / (there.sum() * counts[there])
    return torch.tensor(weights, dtype=torch.float32)
