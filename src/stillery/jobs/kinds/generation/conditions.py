"""Low-resource training splits of text generation models: few samples."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from stillery.data.schema.examples import Splits
from stillery.data.schema.subsets import draw_samples
from stillery.errors import UserError
from stillery.jobs.config.settings import ConditionSettings
from stillery.jobs.kinds.base import Read

__all__ = ["under"]


def under(condition: ConditionSettings, read: Read) -> tuple[Read, dict[str, Any]]:
    """Return the splits with a subsampled training split, and a record of it, by example id.

    Distinct sources are drawn, each with all its references: of a source with three references, three examples are
    kept or none.
    """
    if condition.label_noise is not None:
        raise UserError("--label-noise: texts cannot be flipped to another class; leave it out")
    if condition.samples is None:
        return read, {}
    parts: Splits = read.splits
    encoded = parts.train["source"].dictionary_encode()
    source, whole = encoded.indices.to_numpy(), len(encoded.dictionary)
    if condition.samples > whole:
        raise UserError(f"--samples {condition.samples}: the training split has only {whole} different sources")
    chosen = draw_samples(whole, condition.samples, condition.sample_seed)
    train = parts.train.take(np.flatnonzero(np.isin(source, chosen)))
    record = {"samples": {"of": whole, "seed": condition.sample_seed, "ids": list(train.ids)}}
    kept = "" if len(train) == len(chosen) else f", {len(train)} examples"
    note = f"{len(chosen)} of {whole} training sources drawn with seed {condition.sample_seed}{kept}"
    parts = dataclasses.replace(parts, train=train, note="; ".join([*([parts.note] if parts.note else []), note]))
    return dataclasses.replace(read, splits=parts), record
