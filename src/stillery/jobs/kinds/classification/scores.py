"""Scoring of classifiers: on the dev split during training, at the end, and beside the teacher."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from stillery.data.schema.examples import Examples
from stillery.data.schema.label_mapping import merged
from stillery.data.schema.labels import Labels
from stillery.data.tasks.load_task import find_task, load_task_test
from stillery.errors import UserError
from stillery.evaluation.agreement import agreement_evaluation
from stillery.evaluation.metrics import agreement, majority_collapse, predicted, score
from stillery.evaluation.predictions import named_sets, predict_logits, write_predictions
from stillery.evaluation.ranking_metrics import Queries
from stillery.evaluation.ranking_report import ranking_evaluation, ranking_scores
from stillery.evaluation.report import evaluation
from stillery.evaluation.submission import write_submission
from stillery.jobs.card_usage import classification_usage
from stillery.jobs.config.settings import InputSettings
from stillery.jobs.kinds.base import Finishing, Reader, Scored, Scoring
from stillery.jobs.prepared import Data, Prepared
from stillery.lines import listed
from stillery.models.custom_head import HOW_TO_LOAD
from stillery.models.projected_head import is_custom
from stillery.progress import say
from stillery.train.trainable import TrainingData
from stillery.train.validation import OneAnswer, Scores

__all__ = ["answers", "compared", "evaluate", "finishing", "scorer", "submission", "write_answers"]

Logits = NDArray[np.float32]

_HARDLY = 0.01
"""Predicted scores whose spread is less than this fraction of the labels' count as constant."""


def scorer(prepared: Prepared, data: Data) -> Callable[[PreTrainedModel], Mapping[str, float]]:
    """Return a function that scores on the dev split's labels or, where it has none, on the teacher's predictions."""
    dev, tokenised = data.splits["dev"]
    labels = dev.labels
    assert labels is not None
    teachers = prepared.teacher_outputs(_logits, dev, tokenised)

    def scores(model: PreTrainedModel) -> Mapping[str, float]:
        logits = _logits(model, tokenised, "dev")
        if dev.gold is not None:
            query = dev.examples.get("query")
            if query is None:
                found = score(dev.gold, logits, labels, dev.metrics)
            else:
                found = ranking_scores(dev.gold, logits, labels, Queries.of(query), dev.metrics)
            return Scores(found, _one_answer(logits, dev.gold, labels))
        found = {"agreement": agreement(logits, teachers(), labels)}
        return Scores(found, _one_answer(logits, predicted(teachers(), labels), labels))

    return scores


def answers(reader: Reader, scored: Scored, tokenised: TrainingData | None) -> Logits:
    """Return the model's logits for every example, over the scored classes."""
    loaded, encoding = reader.loaded, reader.encoding
    if tokenised is None:
        tokenised = encoding.data(scored.examples, loaded.tokenizer, reader.description)
    logits = _logits(loaded.model, tokenised, f"score {reader.description}", batch_size=reader.batch_size)
    return logits if encoding.groups is None else merged(logits, encoding.groups)


def evaluate(scored: Scored, student: Logits, teacher: Logits | None) -> dict[str, Any]:
    """Return the metrics of a model with intervals; for an unlabelled split its agreement with the teacher."""
    assert scored.labels is not None
    if scored.gold is None:
        assert teacher is not None
        return agreement_evaluation(scored.task, student, teacher, scored.labels)
    query = scored.examples.get("query")
    if query is None:
        return evaluation(scored.task, scored.gold, student, scored.labels, teacher, scored.metrics)
    queries = Queries.of(query)
    return ranking_evaluation(scored.task, scored.gold, student, scored.labels, queries, teacher, scored.metrics)


def compared(scored: Scored, logits: Logits) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return labels and predictions: class names, as numbers if all are numeric; scores; for multi-label 0s and 1s."""
    labels = scored.labels
    assert labels is not None and scored.gold is not None
    guess = predicted(logits, labels)
    if labels.regression or labels.multi:
        return scored.gold, guess
    names: list[Any] = list(labels.names)
    if all(re.fullmatch(r"-?\d+", name) for name in names):
        names = [int(name) for name in names]
    named = np.array(names)
    return named[scored.gold], named[guess]


def write_answers(path: Path, scored: Scored, student: Logits, teacher: Logits | None) -> None:
    """Write every example with its label, and the prediction and probabilities of the model and its teacher."""
    assert scored.labels is not None
    write_predictions(path, scored.examples, scored.labels, student, teacher)


def submission(inputs: InputSettings) -> Callable[[Reader, Scoring, Path], list[str]]:
    """Read the unlabelled test split of a GLUE task, and return a function that writes a model's predictions for it."""
    data = inputs.data
    if data.task is None:
        raise UserError("--submission is for the tasks of GLUE: give --task, such as --task rte")
    task = find_task(data.task)
    tests: Mapping[str, Examples] = load_task_test(data.task, None if data.data_dir is None else Path(data.data_dir))

    def write(reader: Reader, scoring: Scoring, folder: Path) -> list[str]:
        written = []
        for name, examples in tests.items():
            scored = Scored(task=task.name, split=name, examples=examples, labels=scoring.scored.labels)
            written.append(str(write_submission(folder, name, answers(reader, scored, None), task)))
        return written

    return write


def finishing(prepared: Prepared, data: Data, model: PreTrainedModel) -> Finishing:
    """Report whether the model predicts the same class for every dev example, and whether its head is a custom one."""
    dev, tokenised = data.splits["dev"]
    assert dev.labels is not None
    metrics: dict[str, Any] = {}
    warning = None
    if majority_collapse(_logits(model, tokenised, None), dev.labels):
        warning = f"the model gives every {dev.split} example the same answer; it has learnt nothing useful"
        metrics["collapsed"] = True
    if is_custom(model):
        say(f"the student's head is custom: it does not load as a plain checkpoint, but with `{HOW_TO_LOAD}`")
        metrics["custom_head"] = True
    usage = classification_usage(several_labels=dev.labels.multi)
    card = {"tag": "text-classification", "title": "Fine-tuned classifier", "usage": usage}
    return Finishing(metrics=metrics, card=card, one_answer=warning)


def _logits(
    model: PreTrainedModel, tokenised: TrainingData, description: str | None, *, batch_size: int = 64
) -> Logits:
    return predict_logits(
        model, tokenised.tokens, tokenised.examples, pad_id=tokenised.pad_id, batch_size=batch_size,
        description=description,
    )  # fmt: skip


def _one_answer(logits: NDArray[Any], expected: NDArray[Any], labels: Labels) -> OneAnswer | None:
    """Return the prediction if it is the same for all examples; of scores, if they hardly vary while the labels do."""
    found = predicted(logits, labels)
    if labels.regression:
        if found.std() >= _HARDLY * expected.std():
            return None
        return OneAnswer(answer=f"the score {found.mean():.3g}", examples=len(found))
    if not majority_collapse(logits, labels):
        return None
    if labels.multi:
        names = named_sets(found[:1], labels)[0]
        answer = f"the labels {listed(names)}" if names else "no label"
        return OneAnswer(answer=answer, examples=len(found), expected=float((expected == found).all(axis=1).mean()))
    share = float((expected == found).mean())
    return OneAnswer(answer=f"the class {labels.names[found[0]]}", examples=len(found), expected=share)
