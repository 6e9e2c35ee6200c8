"""What a model that classifies tokens makes of sentences given as words."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from stillery.data.tokens.batches import in_order, padded_to
from stillery.data.tokens.word_batches import collate_words
from stillery.data.tokens.words import WordTokens
from stillery.errors import UserError
from stillery.evaluate.inference_mode import device_of, evaluating
from stillery.models.trace import accepted_inputs
from stillery.progress import track

__all__ = ["NO_TAG", "predict_words", "predicted_tags"]

NO_TAG = -1
"""Stands for the tag of a word that a model was not shown."""


def predict_words(
    model: PreTrainedModel,
    words: WordTokens,
    *,
    pad_id: int,
    batch_size: int = 64,
    description: str = "evaluate",
    progress: bool = True,
) -> NDArray[np.float32]:
    """The logits `[words, classes]` at the first piece of each word, sentence after sentence, on the model's device.

    They are NaN for words that were cut off.
    """
    device = device_of(model)
    batches = in_order(words.tokens.lengths, batch_size)
    if not batches:
        raise UserError("there are no examples to evaluate on")
    logits = np.full((words.words, int(model.config.num_labels or 0)), np.nan, dtype=np.float32)
    names = [str(row) for row in range(len(words))]
    with evaluating(model), torch.inference_mode():
        for index in track(batches, description) if progress else batches:
            batch = collate_words(words, None, names, index, pad_id, padded_to(device)).to(device)
            given = model(**accepted_inputs(model, batch.inputs)).logits
            chosen, rows, places = _first_pieces(words, index)
            logits[chosen] = given[rows, places].float().cpu().numpy()
    return logits


def _first_pieces(
    words: WordTokens, index: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The words of a batch that begin in it, the sentence of each in the batch, and its first piece's position."""
    counts = words.offsets[index + 1] - words.offsets[index]
    rows = np.repeat(np.arange(len(index)), counts)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])[:-1]
    chosen = np.arange(int(counts.sum())) - starts[rows] + words.offsets[index][rows]
    there = words.first[chosen] >= 0
    chosen, rows = chosen[there], rows[there]
    return chosen, rows, words.first[chosen] - words.tokens.offsets[index][rows]


def predicted_tags(logits: NDArray[np.float32], words: WordTokens, tags: int) -> NDArray[np.int64]:
    """The number of the tag that each word `[words, tags]` is given, `NO_TAG` of words that were not shown."""
    if logits.ndim != 2 or logits.shape != (words.words, tags):
        raise UserError(
            f"the model gives outputs of shape {list(logits.shape)}, the task needs {tags} for each of "
            f"{words.words} words"
        )
    shown = words.first >= 0
    # The largest of a row with NaN in it is a tag like any other: without this a broken model gets a score.
    broken = int((~np.isfinite(logits[shown]).all(axis=1)).sum())
    if broken:
        raise UserError(f"the model's outputs are not finite for {broken} of {int(shown.sum())} words")
    found = np.full(len(logits), NO_TAG, dtype=np.int64)
    found[shown] = logits[shown].argmax(axis=1)
    return found
