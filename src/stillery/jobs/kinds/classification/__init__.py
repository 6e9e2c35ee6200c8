"""Classifiers: one class or several labels for each text, or a score."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from transformers import PreTrainedConfig

from stillery.data.schema.labels import Labels
from stillery.jobs.chosen_recipe import method_without_labels
from stillery.jobs.config.inherited import as_taught
from stillery.jobs.config.settings import GenerationSettings, InputSettings, SearchSettings, setting_names
from stillery.jobs.kinds.base import Kind, Read, Refusal, Scoring
from stillery.jobs.kinds.classification import inputs
from stillery.jobs.kinds.classification.checks import CHECKS
from stillery.jobs.kinds.classification.conditions import under
from stillery.jobs.kinds.classification.exporting import EXPORTING
from stillery.jobs.kinds.classification.measures import class_weights, measured
from stillery.jobs.kinds.classification.predicting import PREDICTING
from stillery.jobs.kinds.classification.scores import (
    answers,
    compared,
    evaluate,
    finishing,
    scorer,
    submission,
    write_answers,
)
from stillery.jobs.kinds.classification.student import make_student, wanted_sizes
from stillery.lines import listed
from stillery.losses import Kind as Outputs
from stillery.models.load_model import Loaded, check_same_tokenizer, load_classifier

__all__ = ["KIND"]

_ONLY_GENERATION = (
    *setting_names(GenerationSettings), *setting_names(SearchSettings),
    "encoder_layers", "decoder_layers", "copy_encoder_layers", "copy_decoder_layers", "freeze_embeddings",
    "tie_embeddings", "copy_embeddings", "cross_attention", "sequence_level", "on_policy", "drop_start", "stacks",
)  # fmt: skip


def _load(name: str) -> Loaded:
    return load_classifier(name)


def _load_base(name: str, read: Read | None, seed: int) -> Loaded:
    """Load a pretrained encoder with a new head for the labels of the data."""
    labels: Labels | None = read.splits.labels if read else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        loaded = load_classifier(name, labels=labels.count if labels else 2)
    if labels is not None:
        config: PreTrainedConfig = loaded.model.config
        config.id2label, config.label2id = labels.id2label, labels.label2id
        config.problem_type = labels.problem_type
    return loaded


def _load_for_layers(name: str, teacher: Loaded | None) -> Loaded:
    """Load a teacher of hidden states only, which needs no trained head."""
    with torch.random.fork_rng(devices=[]):
        loaded = load_classifier(name, labels=2)
    if teacher is not None:
        check_same_tokenizer(teacher, loaded)
    return loaded


def _summary(read: Read) -> str:
    labels: Labels = read.splits.labels
    if labels.regression:
        return "regression" if read.splits.dev.get("query") is None else "documents to rank for queries"
    return f"{'any of the ' if labels.multi else ''}labels {listed(labels.names)}"


def _outputs(read: Read) -> Outputs:
    labels: Labels = read.splits.labels
    return labels.kind


def _readers(scoring: Scoring, models: Sequence[tuple[Loaded, InputSettings]]) -> list[inputs.Encoding]:
    """Return each model's encoding; one with other labels has its outputs grouped into the scored classes."""
    found = []
    for place, (model, settings) in enumerate(models):
        groups = scoring.groups if place == 0 else inputs.groups_of(scoring, model)
        encoding = inputs.encoding(settings, [model.model.config], model.tokenizer)
        found.append(dataclasses.replace(encoding, groups=groups))
    return found


KIND = Kind(
    name="classification",
    layouts=("encoder",),
    refuses=(
        Refusal(
            names=_ONLY_GENERATION,
            line="{option} is for models that generate text, such as T5 or Llama; this one is a classifier",
        ),
        Refusal(
            names=("pooling", "similarity_weight"),
            line="{option} is for models that embed texts; this one is a classifier",
        ),
    ),
    load=_load,
    load_base=_load_base,
    load_for_layers=_load_for_layers,
    make_student=make_student,
    student_sizes=wanted_sizes,
    read=inputs.read,
    read_texts=inputs.read_texts,
    read_to_score=inputs.read_to_score,
    under=under,
    measured=measured,
    summary=_summary,
    calibration=inputs.calibration,
    inherit=as_taught,
    encoding=inputs.encoding,
    method=method_without_labels,
    checks=CHECKS,
    outputs=_outputs,
    class_weights=class_weights,
    scorer=scorer,
    batch_size=lambda training, device: 64,
    readers=_readers,
    answers=answers,
    evaluation=evaluate,
    compared=compared,
    write_answers=write_answers,
    submission=submission,
    finishing=finishing,
    predicting=PREDICTING,
    exporting=EXPORTING,
)
