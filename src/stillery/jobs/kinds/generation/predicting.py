"""Predictions of text generation models: the column that `stillery predict` adds to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stillery.data.schema.answer_texts import generation
from stillery.data.schema.new_texts import TextBatch, TextFile, open_texts
from stillery.evaluation.generate import generate
from stillery.jobs.config.settings import InputSettings
from stillery.jobs.kinds.base import Predicting, Reader
from stillery.progress import quiet

__all__ = ["PREDICTING"]

# Model batches per batch of file rows: texts of similar length are generated together.
_TOGETHER = 4


def _open(path: Path, inputs: InputSettings) -> TextFile:
    data = inputs.data
    schema = generation(inputs.generation.source, encoding=data.encoding, skip_empty=data.skip_empty)
    return open_texts(path, schema)


def _rows(reader: Reader, rows: TextBatch) -> tuple[list[list[Any]], int]:
    """Return the generated texts, and how many sources were truncated."""
    loaded, encoding, examples = reader.loaded, reader.encoding, rows.examples
    with quiet():
        prompts = encoding.reading.prompts(examples, loaded.tokenizer, examples.source)
    texts = generate(
        loaded.model, loaded.tokenizer, prompts, decoding=encoding.decoding, batch_size=reader.batch_size,
        description=None,
    )  # fmt: skip
    return [texts], prompts.truncated


PREDICTING = Predicting(
    open=_open,
    columns=lambda loaded: ["output"],
    rows=_rows,
    at_once=lambda batch_size: _TOGETHER * batch_size,
    verb="write",
    noun="sources",
)
