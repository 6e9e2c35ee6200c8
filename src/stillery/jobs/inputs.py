"""Read the examples a job works on, and turn them into tokens a model can take."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from stillery.data.examples import Examples, Parts, load, load_file, load_for_scoring
from stillery.data.folders import PARTS, find_parts
from stillery.data.labels import Labels
from stillery.data.tasks import load_task
from stillery.data.tokens import Tokens, tokenise
from stillery.faults import Fault
from stillery.jobs.settings import DataSettings
from stillery.models.family import longest_input
from stillery.progress import say

__all__ = [
    "check_batch_size",
    "examples_to_score",
    "parts_of",
    "supplementary_texts",
    "to_device",
    "token_limit",
    "tokens_of",
]


def parts_of(data: DataSettings, labels: Labels | None) -> Parts:
    """Train, dev and test parts; with `labels`, a model's, in the model's order of classes."""
    _check_kind(data, labels)
    if data.task is not None:
        return load_task(data.task, labels)
    assert data.data is not None
    return load(
        Path(data.data),
        text=data.text,
        text_pair=data.text_pair,
        label=data.label,
        labels=labels,
        regression=data.regression,
    )


def supplementary_texts(data: str | None, task: str | None, like: DataSettings) -> Examples | None:
    """Texts for a stage that needs no labels: a file, a folder's train file, or a task's training part."""
    if data is None and task is None:
        return None
    if data is not None and task is not None:
        raise Fault("both --ild-data and --ild-task are given: give one")
    if task is not None:
        return dataclasses.replace(load_task(task).train, labels=None)
    assert data is not None
    path = Path(data)
    file = find_parts(path)["train"] if path.is_dir() else path
    return load_file(file, text=like.text, text_pair=like.text_pair, need_labels=False)[0]


def examples_to_score(data: DataSettings, labels: Labels, part: str | None) -> tuple[str, Examples]:
    """The name of the task and the examples a model is scored on."""
    if part is not None and part not in PARTS:
        raise Fault(f"--part {part}: choose from {', '.join(PARTS)}")
    _check_kind(data, labels)
    if data.task is not None:
        parts = load_task(data.task, labels)
        chosen = {"train": parts.train, "dev": parts.dev, "test": parts.test}[part or "test"]
        assert chosen is not None
        return data.task, chosen
    assert data.data is not None
    path = Path(data.data)
    examples = load_for_scoring(
        path, part=part, text=data.text, text_pair=data.text_pair, label=data.label, labels=labels
    )
    return path.resolve().name, examples


def _check_kind(data: DataSettings, labels: Labels | None) -> None:
    """Refuse to read as scores what a model learnt as classes, and the other way round."""
    if labels is not None and data.regression not in (None, labels.regression):
        option, gives = ("--regression", "classes") if data.regression else ("--no-regression", "a number")
        raise Fault(f"{option}: the model predicts {gives}; leave the option out")


def check_batch_size(batch_size: int) -> None:
    """Refuse a batch of nothing."""
    if batch_size < 1:
        raise Fault(f"the batch size is {batch_size}: it must be at least 1")


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
    """The tokens of one part; says how many texts were cut."""
    tokens = tokenise(examples, tokenizer, limit, f"tokenise {part}")
    if tokens.truncated:
        say(f"{part}: {tokens.truncated} of {len(examples)} texts are longer than {limit} tokens and were cut")
    return tokens
