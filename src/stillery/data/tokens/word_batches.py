"""Batches of sentences given as words: token ids, and the label of each word's first piece."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from stillery.data.tokens.batches import Batch, Indices, padded
from stillery.data.tokens.words import IGNORED, WordTokens

__all__ = ["collate_words"]


def collate_words(
    words: WordTokens,
    labels: NDArray[np.int64] | None,
    ids: Sequence[str],
    index: Indices,
    pad_id: int,
    pad_to: int = 8,
) -> Batch:
    """Gather sentences into a batch, padded to the longest of them rounded up to a multiple of `pad_to`.

    The labels `[sentences, tokens]` are among the inputs, `IGNORED` for padding too: they say which positions count.
    `labels` are as `first_piece_labels` gives them; without any there are none in the batch.
    """
    tokens, index = words.tokens, np.asarray(index)
    real, position = padded(tokens, index, pad_to, "right")

    def gathered(source: NDArray[np.int64] | NDArray[np.int32] | NDArray[np.int8], pad: int) -> torch.Tensor:
        return torch.from_numpy(np.where(real, source[position].astype(np.int64), pad))

    inputs = {"input_ids": gathered(tokens.flat, pad_id), "attention_mask": torch.from_numpy(real.astype(np.int64))}
    if tokens.types is not None:
        inputs["token_type_ids"] = gathered(tokens.types, 0)
    if labels is not None:
        inputs["labels"] = gathered(labels, IGNORED)
    return Batch(index=index, ids=tuple(ids[row] for row in index), inputs=inputs, labels=None)
