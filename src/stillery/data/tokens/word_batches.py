"""Batches for token classification: token ids, and labels at the first subword of each word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from stillery.data.tokens.batches import Batch, Indices
from stillery.data.tokens.collate import Padded
from stillery.data.tokens.encode_words import WordTokens
from stillery.ignored import IGNORED

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

    The labels `[sentences, tokens]` are among the inputs, `IGNORED` for padding too: they mark which positions count.
    `labels` are those of `first_piece_labels`; with None, the batch has no labels.
    """
    tokens, index = words.tokens, np.asarray(index)
    padded = Padded(tokens, index, pad_to, "right")
    inputs = {"input_ids": padded.gather(tokens.flat, pad_id), "attention_mask": padded.mask}
    if tokens.types is not None:
        inputs["token_type_ids"] = padded.gather(tokens.types, 0)
    if labels is not None:
        inputs["labels"] = padded.gather(labels, IGNORED)
    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    return Batch(index=index, ids=tuple(ids[row] for row in index), inputs=tensors, labels=None)
