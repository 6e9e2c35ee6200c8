"""Predictions of a classifier, and the file they are written to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from scipy.special import expit, softmax
from transformers import PreTrainedModel

from stillery.data.readers.writer import write_rows
from stillery.data.schema.examples import Examples
from stillery.data.schema.labels import Labels
from stillery.data.tokens.batches import in_order, padded_to
from stillery.data.tokens.collate import collate
from stillery.data.tokens.encode import Tokens
from stillery.errors import UserError
from stillery.evaluation.inference_mode import device_of, evaluating
from stillery.evaluation.metrics import predicted
from stillery.evaluation.ranking_report import grades, relevance_scores
from stillery.models.model_inputs import accepted_inputs
from stillery.progress import track

__all__ = ["named_sets", "predict_logits", "probabilities", "write_predictions"]


def predict_logits(
    model: PreTrainedModel,
    tokens: Tokens,
    examples: Examples,
    *,
    pad_id: int,
    batch_size: int = 64,
    description: str | None = "evaluate",
) -> NDArray[np.float32]:
    """The model's logits `[n, classes]` in the order of the examples, on the model's own device.

    `description` is the title of the progress bar, None for none.
    """
    device = device_of(model)
    batches = in_order(tokens.lengths, batch_size)
    parts = []
    with evaluating(model), torch.inference_mode():
        for index in track(batches, description):
            inputs = collate(examples, tokens, index, pad_id, padded_to(device)).to(device).inputs
            parts.append(model(**accepted_inputs(model, inputs)).logits.float().cpu().numpy())
    if not parts:
        raise UserError("there are no examples to evaluate on")
    # Batches are sorted by length, to pad little; restore the order of the examples.
    logits = np.empty((len(examples), parts[0].shape[1]), dtype=np.float32)
    logits[np.concatenate(batches)] = np.concatenate(parts)
    return logits


def probabilities(logits: NDArray[Any], labels: Labels) -> NDArray[np.float32]:
    """Softmax of each row `[n, classes]`, sigmoid for several labels; for regression the value itself `[n, 1]`."""
    if labels.regression:
        return logits.astype(np.float32)
    wide = logits.astype(np.float64)
    rows: NDArray[np.float32] = (expit(wide) if labels.multi else softmax(wide, axis=1)).astype(np.float32)
    return rows


def named_sets(values: NDArray[Any], labels: Labels) -> list[list[str]]:
    """The names of the labels that are 1 in each row `[n, labels]`."""
    return [[labels.names[place] for place in np.flatnonzero(row)] for row in values]


def write_predictions(
    path: Path, examples: Examples, labels: Labels, logits: NDArray[Any], teacher_logits: NDArray[Any] | None = None
) -> None:
    """Write predictions atomically to a file in the format of its suffix, one row per example.

    Columns: `id`, `label` (gold: class name, list of names or number, null without one), `prediction`,
    `probabilities` (a list; for regression the value), and with a teacher `teacher_prediction` and
    `teacher_probabilities`. Examples with queries also have `query`, `grade` (null without a label) and `relevance`,
    which they are ranked by, and `teacher_relevance`.
    """
    columns = {"id": pa.array([str(name) for name in examples.ids], pa.string()), "label": _gold(examples, labels)}
    query = examples.get("query")
    if query is not None:
        columns |= {"query": query.cast(pa.string()), "grade": _grades(examples, labels)}
    for prefix, outputs in (("", logits), ("teacher_", teacher_logits)):
        if outputs is not None:
            columns |= _outputs(prefix, outputs, labels)
            if query is not None:
                columns[f"{prefix}relevance"] = pa.array(relevance_scores(outputs, labels), pa.float32())
    with write_rows(path, list(columns), {name: column.type for name, column in columns.items()}) as writer:
        writer.write(columns)


def _outputs(prefix: str, logits: NDArray[Any], labels: Labels) -> dict[str, pa.Array]:
    rows = probabilities(logits, labels)
    return {
        f"{prefix}prediction": _named(predicted(logits, labels), labels),
        f"{prefix}probabilities": pa.array(list(rows), pa.list_(pa.float32())),
    }


def _grades(examples: Examples, labels: Labels) -> pa.Array:
    if examples.labels is None:
        return pa.nulls(len(examples), pa.float32())
    return pa.array(grades(examples.labels, labels).astype(np.float32), pa.float32())


def _gold(examples: Examples, labels: Labels) -> pa.Array:
    if examples.labels is None:
        kinds = {"score": pa.float32(), "labels": pa.list_(pa.string())}
        return pa.nulls(len(examples), kinds.get(labels.kind, pa.string()))
    return _named(examples.labels, labels)


def _named(values: NDArray[Any], labels: Labels) -> pa.Array:
    if labels.regression:
        return pa.array(values.astype(np.float32), pa.float32())
    if labels.multi:
        return pa.array(named_sets(values, labels), pa.list_(pa.string()))
    return pa.array([labels.names[index] for index in values], pa.string())
