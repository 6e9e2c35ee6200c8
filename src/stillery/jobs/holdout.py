"""Part of the training split held out for model selection, so that dev and test are scored once, at the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.data.schema.examples import Examples, Splits
from stillery.data.schema.splits import text_keys
from stillery.errors import UserError
from stillery.jobs.config.settings import ConditionSettings
from stillery.jobs.kinds.base import Kind, Read

__all__ = ["HOLDOUT", "held_out", "holdout_rows"]

HOLDOUT = "holdout"
"""Name of the held-out split."""


def held_out(
    condition: ConditionSettings, read: Read, record: Mapping[str, Any], kind: Kind
) -> tuple[Read, dict[str, Any]]:
    """Return the splits with part of train in place of dev, which is then scored at the end, and a record of it.

    The training split is divided after `--samples` and `--label-noise`, so that the data for model selection is neither
    more nor cleaner than a run under these conditions has.
    """
    if condition.holdout is None:
        return read, dict(record)
    parts: Splits = read.splits
    chosen = holdout_rows(parts.train, condition.holdout, condition.holdout_seed)
    held, rest = parts.train.take(np.flatnonzero(chosen)), parts.train.take(np.flatnonzero(~chosen))
    if rest.labels is not None and len(np.unique(rest.labels, axis=0)) < 2:
        raise UserError(
            f"--holdout {condition.holdout:g}: all {len(rest)} examples that are left to train on have one label; "
            "lower it, or change --holdout-seed"
        )
    # Reported is the test split, or dev without one. Further splits of a task are reported beside it.
    last = read.scored.get("test", read.scored["dev"])
    more = {name: one for name, one in read.scored.items() if name not in ("dev", "test")}
    note = (
        f"{len(held)} of {len(parts.train)} training examples are held out to choose by, with seed "
        f"{condition.holdout_seed}; {last.split} is scored once, at the end"
    )
    splits = dataclasses.replace(
        parts, train=rest, dev=held, test=parts.dev if parts.test is None else parts.test,
        note="; ".join([*([parts.note] if parts.note else []), note]),
    )  # fmt: skip
    drawn = {"share": condition.holdout, "seed": condition.holdout_seed, "of": len(parts.train), "ids": list(held.ids)}
    scored = {"dev": kind.to_select(read, held, HOLDOUT), "test": last, **more}
    return Read(splits=splits, scored=scored), {**record, HOLDOUT: drawn}


def holdout_rows(train: Examples, share: float, seed: int = 0) -> NDArray[np.bool_]:
    """Return a mask of held-out training examples, chosen by the hash of their inputs: copies of a text stay together.

    Where there are queries, they are held out with all of their documents.

    A text is held out of every subset that contains it, so that a teacher of the whole split and a student of a
    thousand examples hold out the same texts. The share is met on average; at least one text is held out and one left.
    """
    keys = text_keys(train.kept_together, seed)
    different = np.unique(keys)
    if len(different) < 2:
        raise UserError(f"--holdout {share:g}: the training split has one text only, so none can be held out")
    # Keys are 64 bits; a share of them lies below the bound.
    bound = min(max(np.uint64(share * 2.0**64), different[0]), different[-2])
    chosen: NDArray[np.bool_] = keys <= bound
    return chosen
