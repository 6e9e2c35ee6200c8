"""Predictions of token classifiers: the column that `stillery predict` adds to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stillery.data.schema.answer_tags import tagging
from stillery.data.schema.new_texts import BATCH_ROWS, TextBatch, TextFile, open_texts
from stillery.data.tokens.encode_words import tokenise_words
from stillery.evaluation.word_predictions import predict_words, predicted_tags, tag_names
from stillery.jobs.config.settings import InputSettings
from stillery.jobs.kinds.base import Predicting, Reader
from stillery.jobs.kinds.token_classification.tagged_rows import refuse_texts
from stillery.progress import quiet

__all__ = ["PREDICTING"]

_COLUMN = "prediction"
"""The name of the added column; not `tags`, which a file may have as gold labels."""


def _open(path: Path, inputs: InputSettings) -> TextFile:
    refuse_texts(path, inputs.data.encoding)
    return open_texts(path, tagging(text=inputs.data.text, encoding=inputs.data.encoding))


def _rows(reader: Reader, rows: TextBatch) -> tuple[list[list[Any]], int]:
    """Return the tags of each sentence's words, null for truncated words, and how many sentences were truncated."""
    model, tokenizer, encoding = reader.loaded.model, reader.loaded.tokenizer, reader.encoding
    with quiet():
        words = tokenise_words(rows.examples["tokens"], tokenizer, encoding.max_length)
    pad, size = int(tokenizer.pad_token_id), reader.batch_size
    logits = predict_words(model, words, pad_id=pad, batch_size=size, progress=False)
    guess = predicted_tags(logits, words, len(encoding.tags))
    return [tag_names(guess, words.offsets, encoding.tags).to_pylist()], words.tokens.truncated


PREDICTING = Predicting(
    open=_open, columns=lambda loaded: [_COLUMN], rows=_rows, at_once=lambda batch_size: BATCH_ROWS, noun="sentences"
)
