"""Batches of texts to be written from texts: what a model is shown, and the tokens it is scored on."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from stillery.data.tokens.batches import Batch, Indices, padded
from stillery.data.tokens.encode import Tokens
from stillery.data.tokens.text_encode import TextTokens

__all__ = ["IGNORED", "collate_text"]

IGNORED = -100
"""The label of a token that is not scored."""


def collate_text(
    tokens: TextTokens, index: Indices, pad_id: int, pad_to: int = 8, side: Literal["right", "left"] = "right"
) -> Batch:
    """Gather examples into a batch, padded to the longest of them rounded up to a multiple of `pad_to`.

    `inputs` are input_ids and attention_mask, of the encoder where there is one, and labels `[examples, tokens]`. A
    decoder's labels lie under its input_ids, not shifted, as transformers has them. They are `IGNORED` for padding and
    prompts and for nothing else; an end token is scored even where padding is the same token. `side` is where
    input_ids are padded; the labels of an encoder-decoder always are on the right. `Batch.labels` is None.
    """
    index = np.asarray(index)
    real, position = padded(tokens.source, index, pad_to, side)
    shown = _tokens_at(tokens.source, real, position, pad_id)
    if tokens.target is not None:
        scored, place = padded(tokens.target, index, pad_to, "right")
        labels = _tokens_at(tokens.target, scored, place, IGNORED)
    else:
        assert tokens.prompt_lengths is not None
        starts = tokens.source.offsets[index] + tokens.prompt_lengths[index]
        labels = np.where(real & (position >= starts[:, None]), shown, IGNORED)
    return Batch(
        index=index,
        ids=tuple(tokens.ids[row] for row in index),
        inputs={
            "input_ids": torch.from_numpy(shown),
            "attention_mask": torch.from_numpy(real.astype(np.int64)),
            "labels": torch.from_numpy(labels),
        },
        labels=None,
    )


def _tokens_at(tokens: Tokens, real: NDArray[np.bool_], position: Indices, pad: int) -> NDArray[np.int64]:
    """The tokens of a batch, `pad` where there is none."""
    found: NDArray[np.int64] = np.where(real, tokens.flat[position].astype(np.int64), pad)
    return found
