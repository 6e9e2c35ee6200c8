"""Scoring of token classifiers: on the dev split during training, at the end, and beside the teacher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from stillery.errors import UserError
from stillery.evaluation.entities import TagSet
from stillery.evaluation.entity_metrics import (
    Tagged,
    one_tag,
    tag_agreement,
    tag_agreement_evaluation,
    tag_evaluation,
    tag_scores,
)
from stillery.evaluation.word_predictions import predict_words, predicted_tags, write_tags
from stillery.jobs.card_usage import token_classification_usage
from stillery.jobs.config.settings import InputSettings
from stillery.jobs.kinds.base import Finishing, Reader, Scored, Scoring
from stillery.jobs.kinds.token_classification.inputs import Encoding, encoding, offsets_of
from stillery.jobs.prepared import Data, Prepared
from stillery.lines import listed
from stillery.models.custom_head import HOW_TO_LOAD
from stillery.models.load_model import Loaded
from stillery.models.projected_head import is_custom
from stillery.progress import say
from stillery.train.trainable import WordData
from stillery.train.validation import OneAnswer, Scores

__all__ = ["answers", "as_scored", "evaluate", "finishing", "readers", "scorer", "write_answers"]

Ints = NDArray[np.int64]
"""The predicted tag index of each word, sentence after sentence; -1 for truncated words."""


def scorer(prepared: Prepared, data: Data) -> Callable[[PreTrainedModel], Mapping[str, float]]:
    """Return a function that scores on the dev split's tags or, where it has none, on the teacher's predictions."""
    dev, tokenised = data.splits["dev"]
    teachers = prepared.teacher_outputs(_tags, dev, tokenised)

    def scores(model: PreTrainedModel) -> Mapping[str, float]:
        guess = _tags(model, tokenised, "dev")
        if dev.gold is None:
            found = tag_agreement(guess, teachers(), offsets_of(dev.examples), _tag_set(dev))
            return Scores(found, _one_answer(guess, teachers(), dev))
        return Scores(dict(tag_scores(_gold(dev), guess, draws=1).metrics), _one_answer(guess, dev.gold, dev))

    return scores


def readers(scoring: Scoring, models: Sequence[tuple[Loaded, InputSettings]]) -> list[Encoding]:
    """Return each model's encoding with its own maximum length; all need the same tags, in any order."""
    found = [encoding(settings, [model.model.config], model.tokenizer) for model, settings in models]
    ours = found[0].tags
    for (model, _), one in zip(models, found, strict=True):
        if set(one.tags) != set(ours):
            raise UserError(
                f"{model.name}: its tags ({listed(one.tags)}) are not those of {models[0][0].name} "
                f"({listed(ours)}), so the two cannot be compared"
            )
    return found


def answers(reader: Reader, scored: Scored, tokenised: WordData | None) -> Ints:
    """Return the model's predicted tag of each word, as an index into the scored tags."""
    loaded = reader.loaded
    if tokenised is None:
        tokenised = reader.encoding.data(scored.examples, loaded.tokenizer, reader.description)
    guess = _tags(loaded.model, tokenised, f"score {reader.description}", batch_size=reader.batch_size)
    return as_scored(reader, scored, guess)


def as_scored(reader: Reader, scored: Scored, guess: Ints) -> Ints:
    """Return tags by their index among the scored tags, from those by their index among the model's outputs."""
    assert scored.labels is not None
    # The index after the last tag stands for no tag.
    order = np.array([*map(scored.labels.names.index, reader.encoding.tags), -1])
    return order[guess]


def evaluate(scored: Scored, student: Ints, teacher: Ints | None) -> dict[str, Any]:
    """Return the metrics of a model with intervals; for a split without tags its agreement with the teacher."""
    if scored.gold is None:
        assert teacher is not None
        return tag_agreement_evaluation(scored.task, student, teacher, offsets_of(scored.examples), _tag_set(scored))
    return tag_evaluation(scored.task, _gold(scored), student, teacher, scored.metrics)


def write_answers(path: Path, scored: Scored, student: Ints, teacher: Ints | None) -> None:
    """Write every sentence with its words, their gold tags, and those predicted by the model and its teacher."""
    assert scored.labels is not None
    examples = scored.examples
    write_tags(
        path, examples.ids, examples["tokens"], offsets_of(examples), scored.labels.names, gold=scored.gold,
        guess=student, teacher=teacher,
    )  # fmt: skip


def finishing(prepared: Prepared, data: Data, model: PreTrainedModel) -> Finishing:
    """Report whether the model predicts the same tag for every dev word, and whether its head is a custom one."""
    dev, tokenised = data.splits["dev"]
    metrics: dict[str, Any] = {}
    warning = None
    only = one_tag(_tags(model, tokenised, None), _tag_set(dev))
    if only is not None:
        warning = f"the model gives every word of {dev.split} the tag {only}; it has learnt nothing useful"
        metrics["collapsed"] = True
    if is_custom(model):
        say(f"the student's head is custom: it does not load as a plain checkpoint, but with `{HOW_TO_LOAD}`")
        metrics["custom_head"] = True
    card = {
        "tag": "token-classification",
        "title": "Fine-tuned token classifier",
        "usage": token_classification_usage(),
        "notes": _notes,
    }
    return Finishing(metrics=metrics, card=card, one_answer=warning)


def _notes(metrics: Mapping[str, Any]) -> list[str]:
    """Return the model card's lines on each entity type."""
    return [
        f"Entities of type {name}: precision {one['precision']:.2f}, recall {one['recall']:.2f}, F1 {one['f1']:.2f} "
        f"(95%: {one['interval'][0]:.2f} to {one['interval'][1]:.2f}), {one['entities']} in the data."
        for name, one in metrics.get("types", {}).items()
    ]


def _tags(model: PreTrainedModel, data: WordData, description: str | None, *, batch_size: int = 64) -> Ints:
    words = data.words
    logits = predict_words(
        model, words, pad_id=data.pad_id, batch_size=batch_size, description=description or "",
        progress=description is not None,
    )  # fmt: skip
    return predicted_tags(logits, words, int(model.config.num_labels or 0))


def _tag_set(scored: Scored) -> TagSet:
    assert scored.labels is not None
    return TagSet(names=scored.labels.names)


def _gold(scored: Scored) -> Tagged:
    assert scored.gold is not None
    return Tagged(tags=scored.gold, offsets=offsets_of(scored.examples), tag_set=_tag_set(scored))


def _one_answer(guess: Ints, expected: Ints, scored: Scored) -> OneAnswer | None:
    """Return the tag predicted for all words, if it is the same, and the share of sentences with no other gold tag."""
    tag = one_tag(guess, _tag_set(scored))
    if tag is None:
        return None
    right = np.logical_and.reduceat(expected == guess, offsets_of(scored.examples)[:-1])
    answer = f"the tag {tag} for all its words"
    return OneAnswer(answer=answer, examples=len(scored.examples), expected=float(right.mean()))
