"""How different the layers of one model are: KL divergence of their softmaxed states (ILD-RTC, Figure 2)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from stillery.analyse.states import hidden_states, pooled, reading
from stillery.data.tokens.batches import Batch

__all__ = ["divergences", "layer_divergence"]


def divergences(states: Tensor) -> Tensor:
    """Return KL(p_i || p_j) of all layers i (rows) and j, summed over texts, for states [layers, texts, width].

    p is the softmax of a state over its dimensions.
    """
    logs = states.log_softmax(-1)
    likely = logs.exp()
    negative_entropy = (likely * logs).sum((1, 2))
    return negative_entropy[:, None] - torch.einsum("inp,jnp->ij", likely, logs)


def layer_divergence(
    model: PreTrainedModel, batches: Iterable[Batch], *, stack: str, pool: str = "first", total: int = 0
) -> NDArray[np.float64]:
    """Return the mean KL divergence of the model's layers 1..N from each other, [layers, layers].

    The row is the layer whose distribution the divergence is from: KL(row || column). `pool` makes one vector of a
    text, as the paper does with the first token, or as the mean of its real tokens.
    """
    found: Tensor | None = None
    texts = 0
    with reading("layer divergence", batches, total, model) as shown:
        for batch in shown:
            states = pooled(hidden_states(model, batch, stack), pool)[1:]
            here = divergences(states)
            found = here if found is None else found + here
            texts += states.shape[1]
    assert found is not None
    return (found / texts).clamp_min(0.0).cpu().numpy()
