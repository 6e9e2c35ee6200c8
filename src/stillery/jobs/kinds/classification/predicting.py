"""Predictions of classifiers: the columns that `stillery predict` adds to a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from stillery.data.schema.labels import SEPARATOR, Labels
from stillery.data.schema.new_texts import BATCH_ROWS, TextBatch, TextFile, open_texts
from stillery.data.tokens.encode import tokenise
from stillery.evaluation.metrics import predicted
from stillery.evaluation.predictions import named_sets, predict_logits, probabilities
from stillery.jobs.config.settings import InputSettings
from stillery.jobs.kinds.base import Predicting, Reader
from stillery.jobs.kinds.classification.inputs import texts_alone
from stillery.models.load_model import Loaded
from stillery.progress import quiet

__all__ = ["PREDICTING"]


def _open(path: Path, inputs: InputSettings) -> TextFile:
    return open_texts(path, texts_alone(inputs.data))


def _columns(loaded: Loaded) -> list[str]:
    labels = Labels.of_model(loaded.model.config)
    return ["prediction"] + ([] if labels.regression else [f"probability_{name}" for name in labels.names])


def _rows(reader: Reader, rows: TextBatch) -> tuple[list[list[Any]], int]:
    """Return the predictions, with a column of probabilities for each class, and how many texts were truncated."""
    model, tokenizer = reader.loaded.model, reader.loaded.tokenizer
    labels = Labels.of_model(model.config)
    with quiet():
        tokens = tokenise(rows.examples, tokenizer, reader.encoding.max_length)
    pad, size = int(tokenizer.pad_token_id), reader.batch_size
    logits = predict_logits(model, tokens, rows.examples, pad_id=pad, batch_size=size, description=None)
    guess = predicted(logits, labels)
    if labels.regression:
        return [guess.tolist()], tokens.truncated
    shares = [[round(float(share), 6) for share in column] for column in probabilities(logits, labels).T]
    names = _joined(guess, labels) if labels.multi else [labels.names[index] for index in guess]
    return [names, *shares], tokens.truncated


def _joined(guess: NDArray[Any], labels: Labels) -> list[str]:
    """Return the label names of each row joined in one text, as a JSON list where a name contains the separator."""
    sets = named_sets(guess, labels)
    if any(SEPARATOR in name for name in labels.names):
        return [json.dumps(names, ensure_ascii=False) for names in sets]
    return [SEPARATOR.join(names) for names in sets]


PREDICTING = Predicting(open=_open, columns=_columns, rows=_rows, at_once=lambda batch_size: BATCH_ROWS)
