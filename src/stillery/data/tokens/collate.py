"""Collation: examples gathered into the padded tensors of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from stillery.data.schema.examples import Examples
from stillery.data.tokens.batches import Batch, Indices
from stillery.data.tokens.encode import Tokens
from stillery.data.tokens.encode_generation import GenerationTokens
from stillery.ignored import IGNORED

__all__ = ["Padded", "collate", "collate_generation"]

Side = Literal["right", "left"]


def collate(
    examples: Examples, tokens: Tokens, index: Indices, pad_id: int, pad_to: int = 8, side: Side = "right"
) -> Batch:
    """Gather examples into a batch, padded to the longest of them rounded up to a multiple of `pad_to`.

    `Batch.labels` has one label per example, or a row of them.
    """
    padded = Padded(tokens, index, pad_to, side)
    inputs = {"input_ids": padded.gather(tokens.flat, pad_id)}
    if tokens.types is not None:
        inputs["token_type_ids"] = padded.gather(tokens.types, 0)
    labels = None if examples.labels is None else torch.from_numpy(examples.labels[index])
    return _batch(index, examples.ids, inputs | {"attention_mask": padded.mask}, labels)


def collate_generation(
    tokens: GenerationTokens, index: Indices, pad_id: int, pad_to: int = 8, side: Side = "right"
) -> Batch:
    """Gather examples into a batch, padded to the longest of them rounded up to a multiple of `pad_to`.

    `inputs` are input_ids and attention_mask, of the encoder if there is one, and labels `[examples, tokens]`. A
    decoder's labels are aligned with its input_ids, not shifted, as in transformers. They are `IGNORED` for padding and
    prompts only; an end token is scored even if it is also the padding token. `side` is the padding side of input_ids;
    the labels of an encoder-decoder are always padded on the right. `Batch.labels` is None.
    """
    padded = Padded(tokens.source, index, pad_to, side)
    input_ids = padded.gather(tokens.source.flat, pad_id)
    if tokens.target is not None:
        labels = Padded(tokens.target, index, pad_to, "right").gather(tokens.target.flat, IGNORED)
    else:
        assert tokens.prompt_lengths is not None
        starts = tokens.source.offsets[index] + tokens.prompt_lengths[index]
        labels = np.where(padded.real & (padded.position >= starts[:, None]), input_ids, IGNORED)
    return _batch(index, tokens.ids, {"input_ids": input_ids, "attention_mask": padded.mask, "labels": labels}, None)


class Padded:
    """The token positions of a batch padded to its longest example.

    `real` `[examples, padded length]` is the mask of positions with a token, and `position` its index in `tokens.flat`,
    else 0. Anything with one value per token can be gathered by them: ids, types, labels.
    """

    def __init__(self, tokens: Tokens, index: Indices, pad_to: int, side: Side) -> None:
        starts = tokens.offsets[index]
        sizes = tokens.offsets[index + 1] - starts
        longest = int(sizes.max(initial=0))
        width = -(-longest // pad_to) * pad_to
        if tokens.max_length is not None:
            # A model may have no positions beyond the limit, so padding stops there.
            width = min(width, max(tokens.max_length, longest))
        places = np.arange(width)[None, :]
        first = np.zeros(len(index), dtype=np.int64) if side == "right" else width - sizes
        self.real: NDArray[np.bool_] = (places >= first[:, None]) & (places < (first + sizes)[:, None])
        self.position: Indices = np.where(self.real, starts[:, None] + places - first[:, None], 0)

    @property
    def mask(self) -> NDArray[np.int64]:
        """1 where there is a token, 0 where there is padding."""
        return self.real.astype(np.int64)

    def gather(self, flat: NDArray[Any], pad: int) -> NDArray[np.int64]:
        """Gather the values of the tokens, with `pad` at padding positions."""
        found: NDArray[np.int64] = np.where(self.real, flat[self.position].astype(np.int64), pad)
        return found


def _batch(
    index: Indices, ids: tuple[str, ...], inputs: Mapping[str, NDArray[Any]], labels: torch.Tensor | None
) -> Batch:
    rows = np.asarray(index)
    return Batch(
        index=rows,
        ids=tuple(ids[row] for row in rows),
        inputs={name: torch.from_numpy(array) for name, array in inputs.items()},
        labels=labels,
    )
