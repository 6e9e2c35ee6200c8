"""Embeddings of a file's texts: the column that `stillery predict` adds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stillery.data.schema.new_texts import BATCH_ROWS, TextBatch, TextFile, open_texts
from stillery.data.tokens.encode import tokenise
from stillery.evaluation.predictions import predict_logits
from stillery.jobs.config.settings import InputSettings
from stillery.jobs.kinds.base import Predicting, Reader
from stillery.jobs.kinds.embedding.inputs import texts_alone
from stillery.progress import quiet

__all__ = ["PREDICTING"]


def _open(path: Path, inputs: InputSettings) -> TextFile:
    """Open a file of texts; of pairs the first text is embedded."""
    schema = texts_alone(inputs.data)
    return open_texts(path, dataclasses.replace(schema, inputs=schema.inputs[:1], partners=()))


def _rows(reader: Reader, rows: TextBatch) -> tuple[list[Any], int]:
    """Return the embedding of each row's text, and how many texts were truncated."""
    model, tokenizer = reader.loaded.model, reader.loaded.tokenizer
    with quiet():
        tokens = tokenise(rows.examples, tokenizer, reader.encoding.max_length)
    pad, size = int(tokenizer.pad_token_id), reader.batch_size
    vectors = predict_logits(model, tokens, rows.examples, pad_id=pad, batch_size=size, description=None)
    offsets = pa.array(np.arange(len(vectors) + 1) * vectors.shape[1], pa.int32())
    return [pa.ListArray.from_arrays(offsets, pa.array(vectors.ravel(), pa.float32()))], tokens.truncated


PREDICTING = Predicting(
    open=_open, columns=lambda loaded: ["embedding"], rows=_rows, at_once=lambda batch_size: BATCH_ROWS, verb="embed"
)
