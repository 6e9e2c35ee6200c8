"""Predictions of a token classification model for sentences given as words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from stillery.data.readers.writer import write_rows
from stillery.data.tokens.batches import in_order, padded_to
from stillery.data.tokens.encode_words import WordTokens
from stillery.data.tokens.word_batches import collate_words
from stillery.errors import UserError
from stillery.evaluation.inference_mode import device_of, evaluating
from stillery.models.model_inputs import accepted_inputs
from stillery.progress import track

__all__ = ["NO_TAG", "predict_words", "predicted_tags", "tag_names", "write_tags"]

NO_TAG = -1
"""The tag index of a word without a prediction, such as a truncated one."""


def predict_words(
    model: PreTrainedModel,
    words: WordTokens,
    *,
    pad_id: int,
    batch_size: int = 64,
    description: str = "evaluate",
    progress: bool = True,
) -> NDArray[np.float32]:
    """The logits `[words, classes]` at the first subword of each word, computed on the model's device.

    Sentences follow one another. Words without a subword in the input, such as truncated ones, have NaN.
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
    """The words of a batch with a subword in it, the row of each, and the position of its first subword."""
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


def tag_names(tags: NDArray[np.int64], offsets: NDArray[np.int64], names: Sequence[str]) -> pa.Array:
    """The tag names of each sentence, as lists; null for a word without a tag."""
    known = pa.array(list(names), type=pa.string())
    values = known.take(pa.array(tags, mask=tags < 0))
    return pa.ListArray.from_arrays(pa.array(offsets, type=pa.int32()), values)


def write_tags(
    path: Path,
    ids: Sequence[str],
    tokens: pa.Array,
    offsets: NDArray[np.int64],
    names: Sequence[str],
    *,
    gold: NDArray[np.int64] | None,
    guess: NDArray[np.int64],
    teacher: NDArray[np.int64] | None = None,
) -> None:
    """Write one row per sentence atomically to a file in the format of its suffix.

    Columns, all but the first with an entry per word: `id`, `tokens`, `tags` (null without gold tags),
    `prediction` and, with a teacher, `teacher_prediction`.
    """
    lists = pa.list_(pa.string())
    columns = {
        "id": pa.array([str(name) for name in ids], pa.string()),
        "tokens": tokens.cast(lists),
        "tags": pa.nulls(len(ids), lists) if gold is None else tag_names(gold, offsets, names),
        "prediction": tag_names(guess, offsets, names),
    }
    if teacher is not None:
        columns["teacher_prediction"] = tag_names(teacher, offsets, names)
    with write_rows(path, list(columns), {name: column.type for name, column in columns.items()}) as writer:
        writer.write(columns)
