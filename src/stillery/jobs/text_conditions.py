"""Texts to learn to write under the conditions a run asks for: few samples."""

from __future__ import annotations

import dataclasses
from typing import Any

from stillery.data.corruption import draw_samples
from stillery.data.text_examples import TextParts
from stillery.faults import Fault
from stillery.jobs.settings import ConditionSettings

__all__ = ["drawn"]


def drawn(condition: ConditionSettings, parts: TextParts) -> tuple[TextParts, dict[str, Any]]:
    """The parts with the training one drawn as asked, and a record of it, by example id."""
    if condition.label_noise is not None:
        raise Fault("--label-noise: texts cannot be flipped to another class; leave it out")
    if condition.samples is None:
        return parts, {}
    whole = len(parts.train)
    if condition.samples > whole:
        raise Fault(f"--samples {condition.samples}: the training part has only {whole} examples")
    train = parts.train.take(draw_samples(whole, condition.samples, condition.sample_seed))
    record = {"samples": {"of": whole, "seed": condition.sample_seed, "ids": list(train.ids)}}
    note = f"{len(train)} of {whole} training examples drawn with seed {condition.sample_seed}"
    return dataclasses.replace(
        parts, train=train, note="; ".join([*([parts.note] if parts.note else []), note])
    ), record
