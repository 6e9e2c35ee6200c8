"""Score a model on labelled examples, and beside its teacher."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.data.examples import Examples
from stillery.data.labels import Labels
from stillery.evaluate.predictions import predict_logits
from stillery.evaluate.report import evaluation
from stillery.faults import Fault, Gathered
from stillery.jobs.inputs import check_batch_size, examples_to_score, to_device, token_limit, tokens_of
from stillery.jobs.settings import DataSettings
from stillery.models.load import Loaded, load_classifier

__all__ = ["run_evaluate"]


def _logits(loaded: Loaded, examples: Examples, max_length: int, batch_size: int) -> NDArray[np.float32]:
    to_device(loaded.model)
    limit = token_limit(max_length, loaded.model.config)
    tokens = tokens_of(examples, loaded.tokenizer, limit, loaded.name)
    return predict_logits(
        loaded.model,
        tokens,
        examples,
        pad_id=int(loaded.tokenizer.pad_token_id),
        batch_size=batch_size,
        description=f"score {loaded.name}",
    )


def _in_order_of(labels: Labels, teacher: Labels, name: str) -> list[int]:
    """Where the model's classes are among the teacher's outputs."""
    if labels.regression != teacher.regression or set(labels.names) != set(teacher.names):
        raise Fault(
            f"--against {name}: its labels ({', '.join(teacher.names[:10])}) are not the model's "
            f"({', '.join(labels.names[:10])}), so the two cannot be compared"
        )
    return [teacher.names.index(label) for label in labels.names] if not labels.regression else [0]


def run_evaluate(
    model: str, data: DataSettings, *, against: str | None = None, part: str | None = None, batch_size: int = 64
) -> dict[str, Any]:
    """Metrics of a model in percent with 95% intervals; with `against`, the teacher's too and their agreement."""
    check_batch_size(batch_size)
    faults = Gathered()
    loaded: Loaded | None = None
    teacher: Loaded | None = None
    with faults.catch():
        loaded = load_classifier(model)
    with faults.catch():
        teacher = load_classifier(against) if against is not None else None
    if loaded is not None:
        with faults.catch():
            labels = Labels.of_model(loaded.model.config)
            task, examples = examples_to_score(data, labels, part)
    faults.raise_any()
    assert loaded is not None and examples.labels is not None
    teacher_logits = None
    if teacher is not None:
        order = _in_order_of(labels, Labels.of_model(teacher.model.config), teacher.name)
        teacher_logits = _logits(teacher, examples, data.max_length, batch_size)[:, order]
    logits = _logits(loaded, examples, data.max_length, batch_size)
    return evaluation(task, examples.labels, logits, labels, teacher_logits)
