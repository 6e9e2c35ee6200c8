"""Token classifiers: a tag for each word of a sentence, such as its part of speech or the entity it is in."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from stillery.data.tokens.encode_words import refuse_slow
from stillery.jobs.chosen_recipe import method_without_labels
from stillery.jobs.config.inherited import as_taught
from stillery.jobs.config.settings import ConditionSettings, GenerationSettings, SearchSettings, setting_names
from stillery.jobs.kinds.base import Kind, Read, Refusal
from stillery.jobs.kinds.classification import conditions
from stillery.jobs.kinds.classification.student import make_student, wanted_sizes
from stillery.jobs.kinds.token_classification import inputs, scores
from stillery.jobs.kinds.token_classification.checks import CHECKS
from stillery.jobs.kinds.token_classification.exporting import EXPORTING
from stillery.jobs.kinds.token_classification.predicting import PREDICTING
from stillery.jobs.kinds.token_classification.tagged_rows import meant
from stillery.lines import listed
from stillery.models.head_type import TOKEN
from stillery.models.load_model import Loaded, check_same_tokenizer, load_token_classifier

__all__ = ["KIND"]

_REFUSES = (
    Refusal(
        names=(
            *setting_names(GenerationSettings), *setting_names(SearchSettings),
            "encoder_layers", "decoder_layers", "copy_encoder_layers", "copy_decoder_layers", "freeze_embeddings",
            "tie_embeddings", "copy_embeddings", "cross_attention", "sequence_level", "on_policy", "drop_start",
            "stacks",
        ),
        line="{option} is for models that generate text, such as T5 or Llama; this one tags words",
    ),
    Refusal(
        names=("text_pair", "query", "regression", "multi_label", "label_separator", "max_classes"),
        line="{option} is for classifiers of texts; this model tags words: --text names the column of the words, "
        "--label that of their tags",
    ),
    Refusal(
        names=("label_map", "metric", "class_weights"),
        line="{option} is for classifiers of texts: this model tags words",
    ),
    Refusal(
        names=("skip_empty",), line="{option} is for texts: a sentence without words or tags is an error here, mend it"
    ),
    Refusal(
        names=("pooling", "similarity_weight"),
        line="{option} is for models that embed texts; this one tags words",
    ),
    Refusal(names=("label_noise",), line="{option} is for classifiers of texts: the tags of words are not flipped"),
)  # fmt: skip

_ANY_TAGS = ("O", "I")
"""Placeholder tags for a head that is never used."""


def _load(name: str) -> Loaded:
    return _fast(load_token_classifier(name))


def _load_base(name: str, read: Read | None, seed: int) -> Loaded:
    """Load a pretrained encoder with a new head for the tags of the data, or its own head if it has the same tags."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _fast(load_token_classifier(name, tags=read.splits.labels.names if read else _ANY_TAGS))


def _load_for_layers(name: str, teacher: Loaded | None) -> Loaded:
    """Load a teacher of hidden states only, which needs no trained head."""
    with torch.random.fork_rng(devices=[]):
        loaded = load_token_classifier(name, tags=_ANY_TAGS)
    if teacher is not None:
        check_same_tokenizer(teacher, loaded)
    return loaded


def _fast(loaded: Loaded) -> Loaded:
    refuse_slow(loaded.tokenizer, loaded.name)
    return loaded


def _under(condition: ConditionSettings, read: Read) -> tuple[Read, dict[str, Any]]:
    """Subsample the training split; flipped labels are refused."""
    return conditions.under(dataclasses.replace(condition, label_noise=None), read)


def _summary(read: Read) -> str:
    names = read.splits.labels.names
    return f"{len(names)} tags: {listed(names)}"


KIND = Kind(
    name="token classification",
    layouts=("encoder",),
    heads=(TOKEN.ending,),
    meant=meant,
    refuses=_REFUSES,
    load=_load,
    load_base=_load_base,
    load_for_layers=_load_for_layers,
    make_student=make_student,
    student_sizes=wanted_sizes,
    read=inputs.read,
    read_texts=inputs.read_texts,
    read_to_score=inputs.read_to_score,
    under=_under,
    to_select=inputs.to_select,
    summary=_summary,
    calibration=inputs.calibration,
    inherit=as_taught,
    encoding=inputs.encoding,
    method=method_without_labels,
    checks=CHECKS,
    outputs=lambda read: "tags",
    scorer=scores.scorer,
    batch_size=lambda training, device: 64,
    readers=scores.readers,
    answers=scores.answers,
    evaluation=scores.evaluate,
    write_answers=scores.write_answers,
    finishing=scores.finishing,
    predicting=PREDICTING,
    exporting=EXPORTING,
)
