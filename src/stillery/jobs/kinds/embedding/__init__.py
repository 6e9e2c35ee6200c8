"""Embedding models: one vector for each text, such as the models of sentence-transformers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from stillery.jobs.config.inherited import as_taught
from stillery.jobs.config.settings import (
    ConditionSettings,
    GenerationSettings,
    SearchSettings,
    setting_names,
)
from stillery.jobs.kinds.base import Kind, Read, Refusal
from stillery.jobs.kinds.classification import conditions
from stillery.jobs.kinds.classification import inputs as of_texts
from stillery.jobs.kinds.classification.student import wanted_sizes
from stillery.jobs.kinds.embedding import inputs, scores
from stillery.jobs.kinds.embedding.exporting import EXPORTING
from stillery.jobs.kinds.embedding.method import CHECKS, for_embeddings, written_out
from stillery.jobs.kinds.embedding.predicting import PREDICTING
from stillery.jobs.kinds.embedding.student import make_student
from stillery.models.head_type import EMBEDDING
from stillery.models.load_embedder import load_embedder, with_pooling
from stillery.models.load_model import Loaded, check_same_tokenizer
from stillery.models.model_folder import model_folder
from stillery.models.option_words import DEFAULT_TEXT_START
from stillery.models.sentence_folder import describes_embedder

__all__ = ["KIND"]

_REFUSES = (
    Refusal(
        names=(
            *setting_names(GenerationSettings), *setting_names(SearchSettings),
            "encoder_layers", "decoder_layers", "copy_encoder_layers", "copy_decoder_layers", "freeze_embeddings",
            "tie_embeddings", "copy_embeddings", "cross_attention", "sequence_level", "on_policy", "drop_start",
            "stacks",
        ),
        line="{option} is for models that generate text, such as T5 or Llama; this one embeds texts",
    ),
    Refusal(
        names=("head", "reuse", "projector", "allow_custom_head", "multi_label", "label_separator", "max_classes",
               "label_map", "query", "class_weights", "metric", "label_noise", "restarts"),
        line="{option} is for classifiers; this model embeds texts",
    ),
    Refusal(
        names=("hard_weight", "temperature", "square"),
        line="{option} is for predictions of classes; embeddings are compared by --divergence and --similarity-weight",
    ),
)  # fmt: skip


def _load_for_layers(name: str, teacher: Loaded | None) -> Loaded:
    """Load a teacher of hidden states."""
    loaded = load_embedder(name)
    if teacher is not None:
        check_same_tokenizer(teacher, loaded)
    return loaded


def _under(condition: ConditionSettings, read: Read) -> tuple[Read, dict[str, Any]]:
    """Subsample the training texts; there are no labels to flip."""
    return conditions.under(dataclasses.replace(condition, label_noise=None), read)


def _summary(read: Read) -> str:
    paired = read.scored["dev"].gold is not None
    return f"embeddings, scored by {'pairs of texts' if paired else 'those of the teacher'}"


KIND = Kind(
    name="embedding",
    layouts=("encoder",),
    heads=(EMBEDDING.ending,),
    recognises=lambda model: describes_embedder(Path(model_folder(model))),
    headless=True,
    start=DEFAULT_TEXT_START,
    meant=lambda data: data.pooling is not None,
    refuses=_REFUSES,
    load=load_embedder,
    load_base=lambda name, read, seed: load_embedder(name),
    not_fine_tuned="--pooling is for embedding models, which stillery finetune does not train; stillery distill, "
    "evaluate, predict and export take them",
    load_for_layers=_load_for_layers,
    as_set=lambda loaded, data: with_pooling(loaded, data.pooling),
    make_student=make_student,
    student_sizes=wanted_sizes,
    read=inputs.read,
    read_texts=inputs.read_texts,
    read_to_score=inputs.read_to_score,
    under=_under,
    to_select=inputs.to_select,
    summary=_summary,
    calibration=of_texts.calibration,
    inherit=as_taught,
    encoding=inputs.encoding,
    written_out=written_out,
    recipe=for_embeddings,
    checks=CHECKS,
    outputs=lambda read: "embedding",
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
