"""Representations of hidden states: of the first token, of every token, of their mean.

`represent_relations.py` has the others: attention, and relations between tokens or layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from stillery import declare
from stillery.outputs import StackOutputs
from stillery.parts._wide import wide
from stillery.recipe import Representation, View

__all__ = [
    "Normalise",
    "cls",
    "feature",
    "mean",
    "normalised_tokens",
    "pool",
    "real",
    "samples",
    "token_states",
    "tokens",
    "unmasked_pool",
    "unmasked_tokens",
    "with_raw_last",
]

Normalise = Literal["none", "token", "joint"]
"""How token states are normalised: not, each token by itself, or all real tokens of a batch together."""


def _cls(stack: StackOutputs, layer: int) -> View:
    return View(stack.hidden[layer][:, 0])


def _all_cls(stack: StackOutputs, layers: Sequence[int]) -> Tensor:
    return torch.stack([stack.hidden[layer][:, 0] for layer in layers])


def _tokens(stack: StackOutputs, layer: int) -> View:
    return View(stack.hidden[layer], stack.mask)


def _normalised_tokens(stack: StackOutputs, layer: int, *, over: Literal["token", "joint"]) -> View:
    states = wide(stack.hidden[layer])
    if over == "token":
        return View(F.layer_norm(states, states.shape[-1:]), stack.mask)
    # Selected, not multiplied by the mask: padding may hold any value.
    real = stack.mask.to(torch.bool).unsqueeze(-1)
    elements = (real.sum() * states.shape[-1]).clamp_min(1)
    mean = states.where(real, 0.0).sum() / elements
    variance = (states - mean).where(real, 0.0).square().sum() / elements
    return View((states - mean) * (variance + 1e-5).rsqrt(), stack.mask)


def _pool(stack: StackOutputs, layer: int) -> View:
    # Not by `_all_pooled`, which would copy the rows once more.
    states = stack.hidden[layer]
    if states.shape[1] == 1:
        return _cls(stack, layer)
    return View(mean(states, *real(stack.mask, states.dtype)))


_LARGE_SCORE = 1e4
"""A score whose softmax beside a score of 0 is 1."""


def _all_pooled(stack: StackOutputs, layers: Sequence[int]) -> Tensor:
    states = [stack.hidden[layer] for layer in layers]
    if states[0].shape[1] == 1:
        # Texts of one token, in the form of which a teacher cache returns its means: that token is real.
        return _all_cls(stack, layers)
    # The weight of each token in its text's mean, [batch, 1, tokens]: 1 / n for n real tokens, 0 for padding.
    weights = (torch.softmax(stack.mask * _LARGE_SCORE, dim=-1, dtype=states[0].dtype) * stack.mask).unsqueeze(1)
    # A matrix product reads the states once in each direction; a weighted sum reads them twice.
    return torch.stack([torch.bmm(weights, each).squeeze(1) for each in states])


def real(mask: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The weights of a mean over real tokens: 1 for each, [batch, tokens, 1], and their number, [batch, 1]."""
    weights = mask.to(dtype).unsqueeze(-1)
    return weights, weights.sum(1).clamp_min(1)


def mean(states: Tensor, weights: Tensor, count: Tensor) -> Tensor:
    """The mean of states [batch, tokens, width] over the tokens that are `real`."""
    return (states * weights).sum(1) / count


def _unmasked_pool(stack: StackOutputs, layer: int) -> View:
    return View(stack.hidden[layer].mean(1))


def _samples(stack: StackOutputs, layer: int) -> View:
    pooled = F.normalize(wide(_pool(stack, layer).values), dim=-1)
    return View(pooled @ pooled.T)


cls = declare.representation(
    "cls",
    "the first token's state",
    Representation(name="cls", extract=_cls, rows="examples", reads="first", extract_all=_all_cls),
)
"""The hidden state of the first token, [batch, width] (PKD's "patience")."""

feature = Representation(
    name="feature",
    extract=lambda stack, layer: View(stack.feature[layer]),
    rows="examples",
    needs=("feature",),
    sized=False,
)
"""The input of the final linear classifier, [batch, width] (SimKD).

Behind a projector in the student's head it has the teacher's width.
"""

tokens = declare.representation(
    "tokens",
    "every real token's state",
    Representation(name="tokens", extract=_tokens, rows="tokens", reads="real"),
)
"""The hidden states of all real tokens, [batch, tokens, width], padding masked out."""

normalised_tokens = {
    over: Representation(
        name=f"tokens(normalised by {over})",
        extract=partial(_normalised_tokens, over=over),
        rows="tokens",
        reads="real",
        together=over == "joint",
    )
    for over in ("token", "joint")
}
"""Token states with mean 0 and variance 1: of each token (`token`), or of all real tokens of the batch (`joint`).

The released layer-selection code does the latter for T5, padding included. It depends on the batch composition.
"""


def token_states(normalise: Normalise) -> Representation:
    """The hidden states of all real tokens, normalised or not."""
    return tokens if normalise == "none" else normalised_tokens[normalise]


unmasked_tokens = Representation(
    name="unmasked_tokens", extract=lambda stack, layer: View(stack.hidden[layer]), rows="examples", together=True
)
"""The hidden states of all positions, padding included, as in several released codes: it depends on the padding."""

pool = declare.representation(
    "pool",
    "the mean of the real tokens' states",
    Representation(name="pool", extract=_pool, rows="examples", reads="mean", extract_all=_all_pooled),
)
"""The mean of the real tokens' states, [batch, width] (RAIL-KD, eq. 1)."""

unmasked_pool = Representation(name="unmasked_pool", extract=_unmasked_pool, rows="examples", together=True)
"""The mean over all positions, padding included, as RAIL-KD prints it: it depends on the padding."""

samples = declare.representation(
    "samples",
    "cosines between the examples of a batch",
    Representation(name="samples", extract=_samples, rows="examples", sized=False, reads="mean", together=True),
)
"""Cosines between the mean states of the examples of a batch, [batch, batch]: it depends on the batch composition."""


def with_raw_last(states: Representation) -> Representation:
    """The same states, the last one taken before the norm after the last layer, as all others are."""
    return replace(states, name=f"{states.name}, raw last", raw_last=True)
