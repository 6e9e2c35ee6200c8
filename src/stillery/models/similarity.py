"""How alike the layers of two models are on a few texts: linear CKA of their mean states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from stillery.models.family import sizes, stacks_of
from stillery.models.outputs import Wanted
from stillery.models.trace import trace

__all__ = ["cka", "layer_means", "layer_similarity"]

States = Mapping[str, NDArray[np.float64]]
"""By stack, the mean state of each text in each layer, the embedding output first: [layers + 1, texts, width]."""

_DIGITS = 4


@torch.no_grad()
def layer_means(model: PreTrainedModel, batches: Iterable[Mapping[str, Tensor]]) -> States:
    """Run a model on batches of inputs, where it is and without dropout, and average each text's real tokens."""
    stacks, training = stacks_of(model.config), model.training
    found: dict[str, list[NDArray[np.float64]]] = {stack: [] for stack in stacks}
    model.eval()
    try:
        for batch in batches:
            inputs = {name: tensor.to(model.device) for name, tensor in batch.items()}
            wanted: dict[str, Any] = {
                stack: Wanted(hidden=range(sizes(model.config, stack).layers + 1)) for stack in stacks
            }
            shown = trace(model, inputs, wanted, logits=False)
            for stack in stacks:
                of = shown.stack(stack)
                real = of.mask.bool().unsqueeze(-1)
                sums = [
                    of.hidden[layer].double().where(real, 0.0).sum(1) / real.sum(1).clamp_min(1)
                    for layer in range(of.depth + 1)
                ]
                found[stack].append(torch.stack(sums).cpu().numpy())
    finally:
        model.train(training)
    return {stack: np.concatenate(means, axis=1) for stack, means in found.items()}


def layer_similarity(student: States, teacher: States) -> dict[str, list[list[float]]]:
    """By stack, how alike each of the student's layers is to each of the teacher's, embedding outputs first.

    Rounded, so that devices that differ in the last bits find the same layers.
    """
    return {
        stack: [[round(cka(ours, theirs), _DIGITS) for theirs in teacher[stack]] for ours in student[stack]]
        for stack in student
        if stack in teacher
    }


def cka(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Linear CKA of two sets of rows of the same texts (Kornblith et al., 2019), 1 for the same up to a rotation.

    From four texts on by the unbiased estimate of Song et al. (2012), since there are far fewer texts than dimensions:
    unrelated rows then come to 0, and not nearly to 1.

    >>> rows = np.random.default_rng(0).normal(size=(32, 100))
    >>> round(cka(rows, -2 * rows), 6), abs(cka(rows, np.random.default_rng(1).normal(size=(32, 50)))) < 0.2
    (1.0, True)
    """
    ours, theirs = _gram(one), _gram(other)
    found = _alike(ours, theirs)
    whole = _alike(ours, ours) * _alike(theirs, theirs)
    return float(found / np.sqrt(whole)) if whole > 0 else 0.0


def _gram(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = rows - rows.mean(0)
    scale = np.sqrt((centred**2).sum())
    centred = centred / scale if scale > 0 else centred
    products: NDArray[np.float64] = centred @ centred.T
    if len(rows) > 3:
        np.fill_diagonal(products, 0.0)
    return products


def _alike(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    """The Hilbert-Schmidt independence criterion, unbiased where there are texts enough."""
    texts = len(ours)
    if texts < 4:
        return float((ours * theirs).sum())
    crossed = ours.sum() * theirs.sum() / ((texts - 1) * (texts - 2))
    return float((ours * theirs).sum() + crossed - 2 / (texts - 2) * (ours @ theirs).sum())
