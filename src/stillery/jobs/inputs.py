"""Read the examples a job works on, and turn them into tokens a model can take."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from stillery.data.schema.answer_labels import classification
from stillery.data.schema.examples import Examples, Splits
from stillery.data.schema.label_mapping import map_labels
from stillery.data.schema.labels import Labels
from stillery.data.schema.load import load, load_inputs, load_to_score
from stillery.data.schema.roles import Schema
from stillery.data.schema.split_folders import SPLITS, scored_split
from stillery.data.tasks.load import find_task, load_task, load_task_to_score
from stillery.data.tokens.encode import Tokens
from stillery.data.tokens.token_cache import cached_tokens
from stillery.errors import UserError
from stillery.jobs.config.settings import DataSettings, MethodSettings
from stillery.models.family import longest_input
from stillery.progress import say

__all__ = [
    "Scoring",
    "check_batch_size",
    "groups_of",
    "parts_of",
    "supplementary_texts",
    "to_device",
    "to_score",
    "token_limit",
    "tokens_of",
]


Groups = tuple[tuple[int, ...], ...]
"""For each class that is scored, the outputs of a model that mean it."""


def parts_of(data: DataSettings, labels: Labels | None) -> Splits:
    """Train, dev and test parts; with `labels`, a model's, in the model's order of classes."""
    _check_kind(data, labels)
    if data.task is not None:
        parts = load_task(data.task, labels, _data_dir(data), need_labels=not data.unlabelled)
        bare = dataclasses.replace(parts.train, labels=None)
        return dataclasses.replace(parts, train=bare) if data.unlabelled else parts
    assert data.data is not None
    return load(Path(data.data), _schema(data, labels), need_answers=not data.unlabelled)


def supplementary_texts(method: MethodSettings, like: DataSettings) -> Examples | None:
    """Texts for a stage that needs no labels: a file, a folder's train part, or a task's training part."""
    data, task = method.ild_data, method.ild_task
    if data is None and task is None:
        return None
    if task is not None:
        return dataclasses.replace(load_task(task, data_dir=_data_dir(like)).train, labels=None)
    assert data is not None
    return load_inputs(Path(data), classification(text=like.text, text_pair=like.text_pair))


@dataclass(frozen=True, kw_only=True, eq=False)
class Scoring:
    """What models are scored on, in which classes, and how the model's outputs become those.

    `groups` has for each class the outputs that mean it, None where outputs and classes are the same; `more` are
    further parts of the task.
    """

    name: str
    part: str | None
    examples: Examples
    labels: Labels
    metrics: tuple[str, ...] | None = None
    groups: Groups | None = None
    notes: tuple[str, ...] = ()
    more: Mapping[str, Examples] = field(default_factory=dict)


def to_score(data: DataSettings, labels: Labels, part: str | None) -> Scoring:
    """What a model with these labels is scored on."""
    _check_kind(data, labels)
    if data.task is not None:
        found = load_task_to_score(data.task, labels, part, _data_dir(data))
        assert found.labels is not None
        return Scoring(
            name=data.task,
            part=found.split,
            examples=found.examples,
            labels=found.labels,
            metrics=found.task.metrics,
            groups=found.groups,
            notes=(found.source, found.note),
            more=found.more,
        )
    assert data.data is not None
    if part is not None and part not in SPLITS:
        raise UserError(f"--part {part}: choose from {', '.join(SPLITS)}")
    path = Path(data.data)
    examples = load_to_score(path, _schema(data, labels), part)
    return Scoring(name=path.resolve().name, part=scored_split(path, part), examples=examples, labels=labels)


def _schema(data: DataSettings, labels: Labels | None) -> Schema:
    """How the files of labelled texts are read."""
    return classification(
        text=data.text,
        text_pair=data.text_pair,
        label=data.label,
        labels=labels,
        regression=data.regression,
        multi_label=data.multi_label,
        label_separator=data.label_separator,
    )


def groups_of(scoring: Scoring, labels: Labels, name: str) -> Groups:
    """Which outputs of another model, with labels of its own, mean the classes that are scored."""
    if scoring.groups is not None:
        task = find_task(scoring.name)
        try:
            return map_labels(labels, task.labels, task.name, task.merges).groups
        except UserError as error:
            raise UserError(f"--against {name}: {error}") from None
    ours = scoring.labels
    if ours.kind != labels.kind or set(ours.names) != set(labels.names):
        raise UserError(
            f"--against {name}: its labels ({', '.join(labels.names[:10])}) are not the model's "
            f"({', '.join(ours.names[:10])}), so the two cannot be compared"
        )
    return tuple((labels.names.index(label),) for label in ours.names) if not ours.regression else ((0,),)


def _data_dir(data: DataSettings) -> Path | None:
    return None if data.data_dir is None else Path(data.data_dir)


def _check_kind(data: DataSettings, labels: Labels | None) -> None:
    """Refuse to read labels as another kind than a model learnt: scores as classes, several per text as one."""
    if data.label_separator is not None and not data.multi_label:
        raise UserError("--label-separator is for labels of --multi-label, which is not given")
    if data.label_separator == "":
        raise UserError("--label-separator is empty: give what stands between two labels, such as ';'")
    if data.multi_label and data.regression:
        raise UserError("--multi-label cannot go with --regression: several labels are no score")
    if labels is not None and data.multi_label not in (None, labels.multi):
        option, gives = ("--multi-label", "one label") if data.multi_label else ("--no-multi-label", "several labels")
        raise UserError(f"{option}: the model gives {gives} per text; leave the option out")
    if labels is not None and data.regression not in (None, labels.regression):
        option, gives = ("--regression", "classes") if data.regression else ("--no-regression", "a number")
        raise UserError(f"{option}: the model predicts {gives}; leave the option out")


def check_batch_size(batch_size: int) -> None:
    """Refuse a batch of nothing."""
    if batch_size < 1:
        raise UserError(f"the batch size is {batch_size}: it must be at least 1")


def to_device(model: PreTrainedModel) -> None:
    """Move a model that is only to be asked to the GPU, if there is one."""
    if torch.cuda.is_available():
        model.to("cuda")  # type: ignore[arg-type]


def token_limit(max_length: int, *configs: PreTrainedConfig) -> int:
    """The wanted length, or what the models have positions for if that is less."""
    limit = min([max_length, *map(longest_input, configs)])
    if limit < max_length:
        say(f"texts are cut to {limit} tokens, not {max_length}: the model has no more positions")
    return limit


def tokens_of(examples: Examples, tokenizer: PreTrainedTokenizerBase, limit: int, part: str) -> Tokens:
    """The tokens of one part, from the cache when they are there; says how many texts were cut."""
    tokens = cached_tokens(examples, tokenizer, limit, f"tokenise {part}")
    if tokens.truncated:
        say(f"{part}: {tokens.truncated} of {len(examples)} texts are longer than {limit} tokens and were cut")
    return tokens
