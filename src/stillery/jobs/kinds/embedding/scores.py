"""Scoring of embedding models: on the dev split during training, at the end, and beside the teacher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from transformers import PreTrainedModel

from stillery.data.readers.writer import write_rows
from stillery.errors import UserError
from stillery.evaluation.correlation import spearman
from stillery.evaluation.embeddings import (
    closeness,
    closeness_evaluation,
    cosines,
    pair_cosines,
    pair_evaluation,
    retrieval_evaluation,
    retrieved,
)
from stillery.evaluation.predictions import predict_logits
from stillery.evaluation.retrieval import METRICS, retrieval_scores
from stillery.jobs.card_usage import embedding_usage
from stillery.jobs.config.settings import InputSettings
from stillery.jobs.kinds.base import Finishing, Reader, Scored, Scoring
from stillery.jobs.kinds.embedding.inputs import Encoding, encoding, single_texts
from stillery.jobs.prepared import Data, Prepared
from stillery.models.load_model import Loaded
from stillery.train.trainable import TrainingData
from stillery.train.validation import Scores

__all__ = ["answers", "evaluate", "finishing", "readers", "scorer", "write_answers"]

Vectors = NDArray[np.float32]


def scorer(prepared: Prepared, data: Data) -> Callable[[PreTrainedModel], Mapping[str, float]]:
    """Return a function that scores on the pairs of the dev split or, without, on the teacher's embeddings."""
    dev, tokenised = data.splits["dev"]
    teachers = prepared.teacher_outputs(_embedded, dev, tokenised)

    def scores(model: PreTrainedModel) -> Mapping[str, float]:
        vectors = _embedded(model, tokenised, "dev")
        if dev.gold is not None:
            return Scores({"spearman": 100 * spearman(dev.gold, pair_cosines(vectors))}, None)
        value = closeness(vectors, teachers())
        assert value is not None
        return Scores({"cosine": value}, None)

    return scores


def readers(scoring: Scoring, models: Sequence[tuple[Loaded, InputSettings]]) -> list[Encoding]:
    """Return each model's encoding."""
    return [encoding(settings, [model.model.config], model.tokenizer) for model, settings in models]


def answers(reader: Reader, scored: Scored, tokenised: TrainingData | None) -> Vectors:
    """Return the embeddings of all texts; of pairs those of the first texts, and then of the second ones."""
    if tokenised is None:
        tokenised = reader.encoding.data(scored.examples, reader.loaded.tokenizer, reader.description)
    return _embedded(
        reader.loaded.model, cast(TrainingData, tokenised), f"embed {reader.description}", batch_size=reader.batch_size
    )


def evaluate(scored: Scored, student: Vectors, teacher: Vectors | None) -> dict[str, Any]:
    """Return the metrics of a model with intervals; of texts without scores the cosine to its teacher's embeddings."""
    gold = scored.gold
    if gold is not None and gold.ndim == 2:
        return retrieval_evaluation(scored.task, gold, student, teacher)
    if gold is not None:
        return pair_evaluation(scored.task, gold, student, teacher)
    assert teacher is not None
    if student.shape != teacher.shape:
        raise UserError(
            f"{scored.task}: the embeddings have {student.shape[1]} dimensions and the teacher's {teacher.shape[1]}, "
            "so they are compared by pairs of texts with scores, or queries with documents, only"
        )
    return closeness_evaluation(scored.task, student, teacher)


def write_answers(path: Path, scored: Scored, student: Vectors, teacher: Vectors | None) -> None:
    """Write every example: of a pair the cosine, of a query its first documents, of a text how close the models are."""
    gold, examples = scored.gold, scored.examples
    if gold is not None and gold.ndim == 2:
        columns = _rankings(scored, student)
    else:
        columns = {"id": _texts(examples.ids)} | dict(examples.columns)
        columns["label"] = pa.nulls(len(examples), pa.float32()) if gold is None else _numbers(gold)
        if gold is None:
            assert teacher is not None
            columns["prediction"] = _numbers(cosines(student, teacher))
        else:
            columns["prediction"] = _numbers(pair_cosines(student))
            if teacher is not None:
                columns["teacher_prediction"] = _numbers(pair_cosines(teacher))
    with write_rows(path, list(columns), {name: column.type for name, column in columns.items()}) as writer:
        writer.write(columns)


def finishing(prepared: Prepared, data: Data, model: PreTrainedModel) -> Finishing:
    """Return what the model card says of an embedding model."""
    card = {
        "tag": "sentence-similarity",
        "library": "sentence-transformers",
        "title": "Embedding model",
        "usage": embedding_usage(),
        "notes": _notes,
    }
    return Finishing(card=card)


def _notes(metrics: Mapping[str, Any]) -> list[str]:
    """Return the model card's line on the teacher's embeddings."""
    if "teacher_cosine" not in metrics:
        return []
    return [f"Mean cosine to the teacher's embeddings: {metrics['teacher_cosine'] / 100:.4f}."]


def _rankings(scored: Scored, vectors: Vectors) -> dict[str, pa.Array]:
    gold, texts = scored.gold, single_texts(scored.examples)
    assert gold is not None
    ranking = retrieved(gold, vectors)
    count, scores = len(ranking), retrieval_scores(ranking, gold)
    first = [[texts.ids[count + document] for document in row] for row in ranking.tolist()]
    return {
        "id": _texts(texts.ids[:count]),
        "text": texts["text"].slice(0, count),
        "documents": pa.array(first, pa.list_(pa.string())),
        **{name: _numbers(scores[name]) for name in METRICS},
    }


def _embedded(
    model: PreTrainedModel, tokenised: TrainingData, description: str | None, *, batch_size: int = 64
) -> Vectors:
    return predict_logits(
        model, tokenised.tokens, tokenised.examples, pad_id=tokenised.pad_id, batch_size=batch_size,
        description=description,
    )  # fmt: skip


def _numbers(values: NDArray[Any]) -> pa.Array:
    return pa.array(values.astype(np.float32), pa.float32())


def _texts(values: Sequence[str]) -> pa.Array:
    return pa.array(list(values), pa.string())
