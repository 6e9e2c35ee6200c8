"""Which teacher layers a student's layers attend to: the weights of ALP-KD (RAIL-KD, Figure 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from stillery.analyse.states import hidden_states, pooled, reading
from stillery.data.tokens.batches import Batch

__all__ = ["attention_weights", "weights_of"]


def weights_of(student: Tensor, teacher: Tensor, *, scale: bool = False) -> Tensor:
    """Return the weights [texts, students, teachers] of states [layers, texts, width]: softmax_j(h_Si . h_Tj).

    `scale` divides the products by the square root of the width.
    """
    products = torch.einsum("inp,jnp->nij", student, teacher)
    weights: Tensor = (products / student.shape[-1] ** 0.5 if scale else products).softmax(-1)
    return weights


def attention_weights(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    batches: Iterable[Batch],
    *,
    stack: str,
    pool: str = "first",
    scale: bool = False,
    total: int = 0,
    project: Callable[[Tensor], Tensor] | None = None,
    name: str = "",
) -> NDArray[np.float64]:
    """Return the mean weights over texts of student layers 1..M-1 (of one layer, that one) on teacher layers 1..N-1.

    `project` takes the teacher's states to the student's width.
    """
    found: Tensor | None = None
    texts = 0
    with reading(f"attention weights {name}".strip(), batches, total, student, teacher) as shown:
        for batch in shown:
            ours = pooled(hidden_states(student, batch, stack), pool)
            theirs = pooled(hidden_states(teacher, batch, stack, teacher=True), pool)
            ours = ours[1 : max(len(ours) - 1, 2)]
            theirs = theirs[1 : max(len(theirs) - 1, 2)]
            here = weights_of(ours, theirs if project is None else project(theirs), scale=scale).sum(0)
            found = here if found is None else found + here
            texts += ours.shape[1]
    assert found is not None
    return (found / texts).cpu().numpy()
