"""The label loss of a model on examples, as in training but without dropout."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.data.tokens.batches import Batch
from stillery.evaluation.inference_mode import device_of
from stillery.ignored import IGNORED
from stillery.losses import BatchFacts, Kind, stage_terms
from stillery.models.family import stacks_of
from stillery.models.trace import trace
from stillery.parts._wide import wide
from stillery.recipe import Clock, Stage

__all__ = ["batch_loss", "mean_loss"]

_LABELS, _CLOCK = Stage(), Clock()

Change = Callable[[Batch], Callable[[Tensor], Tensor]]
"""Of a batch: what is done to the embedding output [batch, tokens, width] of the model's first stack."""


def batch_loss(model: PreTrainedModel, batch: Batch, kind: Kind, change: Change | None = None) -> tuple[float, int]:
    """Return the sum of the label loss over the rows of a batch, and their number.

    A row is an example or, where tokens are predicted, a scored token.
    """
    here = batch.to(device_of(model))
    changes = None if change is None else {stacks_of(model.config)[0]: change(here)}
    outputs = trace(model, here.inputs, change=changes)
    outputs = replace(outputs, logits=wide(outputs.logits))
    loss = stage_terms(_LABELS, [], {"plain": outputs}, {}, BatchFacts(labels=here.labels, kind=kind), _CLOCK)["hard"]
    rows = len(here) if outputs.targets is None else int((outputs.targets != IGNORED).sum())
    return float(loss) * rows, rows


@torch.no_grad()
def mean_loss(model: PreTrainedModel, batches: Iterable[Batch], kind: Kind, change: Change | None = None) -> float:
    """Return the mean of the label loss over all rows, for a model in eval mode."""
    total, rows = 0.0, 0
    for batch in batches:
        loss, count = batch_loss(model, batch, kind, change)
        total, rows = total + loss, rows + count
    return total / max(rows, 1)
