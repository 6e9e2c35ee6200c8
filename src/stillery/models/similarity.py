"""Similarity of the layers of two models on a few texts, as linear CKA of their mean hidden states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from stillery.models.family import sizes, stacks_of
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Wanted

__all__ = ["cka", "layer_means", "layer_similarity"]

States = Mapping[str, NDArray[np.float64]]
"""By stack, the mean hidden state of each text in each layer, [layers + 1, texts, width], embedding output first."""

_DIGITS = 4


@torch.no_grad()
def layer_means(model: PreTrainedModel, batches: Iterable[Mapping[str, Tensor]]) -> States:
    """Compute the masked mean hidden state of each text in each layer, in eval mode."""
    stacks, training = stacks_of(model.config), model.training
    found: dict[str, list[NDArray[np.float64]]] = {stack: [] for stack in stacks}
    model.eval()
    try:
        for batch in batches:
            inputs = {name: tensor.to(model.device) for name, tensor in batch.items()}
            wanted: dict[str, Any] = {
                stack: Wanted(hidden=range(sizes(model.config, stack).layers + 1)) for stack in stacks
            }
            outputs = trace(model, inputs, wanted, logits=False)
            for stack in stacks:
                of = outputs.stack(stack)
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
    """Return, by stack, the similarity of each student layer to each teacher layer, embedding outputs first.

    Values are rounded, so that devices that differ in the last bits select the same pairs.
    """
    return {
        stack: [[round(cka(ours, theirs), _DIGITS) for theirs in teacher[stack]] for ours in student[stack]]
        for stack in student
        if stack in teacher
    }


def cka(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Linear CKA of two sets of rows of the same texts (Kornblith et al., 2019): 1 if they differ by a rotation only.

    From four texts on it uses the unbiased estimator of Song et al. (2012). With far fewer texts than dimensions the
    biased one is near 1 for unrelated rows; the unbiased one is near 0.

    >>> rows = np.random.default_rng(0).normal(size=(32, 100))
    >>> round(cka(rows, -2 * rows), 6), abs(cka(rows, np.random.default_rng(1).normal(size=(32, 50)))) < 0.2
    (1.0, True)
    """
    ours, theirs = _gram(one), _gram(other)
    found = _hsic(ours, theirs)
    whole = _hsic(ours, ours) * _hsic(theirs, theirs)
    return float(found / np.sqrt(whole)) if whole > 0 else 0.0


def _gram(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = rows - rows.mean(0)
    scale = np.sqrt((centred**2).sum())
    centred = centred / scale if scale > 0 else centred
    products: NDArray[np.float64] = centred @ centred.T
    if len(rows) > 3:
        np.fill_diagonal(products, 0.0)
    return products


def _hsic(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    """The Hilbert-Schmidt independence criterion, unbiased from four texts on."""
    texts = len(ours)
    if texts < 4:
        return float((ours * theirs).sum())
    crossed = ours.sum() * theirs.sum() / ((texts - 1) * (texts - 2))
    return float((ours * theirs).sum() + crossed - 2 / (texts - 2) * (ours @ theirs).sum())
