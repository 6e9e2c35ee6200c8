"""Data of token classifiers, tagged sentences: the splits of a run, those that are scored, and the encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from stillery.data.schema.answer_tags import tagging
from stillery.data.schema.examples import Examples
from stillery.data.schema.labels import Labels
from stillery.data.schema.load_splits import load, load_inputs, load_to_score
from stillery.data.schema.roles import Schema
from stillery.data.schema.split_folders import SPLITS, scored_split
from stillery.data.schema.tags import encode_tags, place_in
from stillery.data.tokens.batches import in_order
from stillery.data.tokens.encode_words import first_piece_labels, tokenise_words
from stillery.data.tokens.token_cache import cached_words
from stillery.data.tokens.word_batches import collate_words
from stillery.errors import UserError
from stillery.jobs.calibration import AT_ONCE, TOKENS, Calibration, Inputs, spread
from stillery.jobs.config.settings import DataSettings, InputSettings
from stillery.jobs.cut_texts import say_cut
from stillery.jobs.kinds.base import Read, Scored, Scoring
from stillery.jobs.kinds.token_classification.tagged_rows import refuse_texts
from stillery.models.family import longest_input
from stillery.models.load_model import Loaded
from stillery.train.trainable import WordData

__all__ = ["Encoding", "calibration", "encoding", "offsets_of", "read", "read_texts", "read_to_score", "to_select"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The tokenisation of sentences for a model, and the tag of each of its outputs.

    Attributes:
        max_length: the maximum sentence length in tokens, within the position limits of the models.
        asked: the requested maximum length.
        tags: the tags in the order of the model's outputs.
        notes: messages for the user.
    """

    max_length: int
    asked: int
    tags: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def settings(self) -> dict[str, Any]:
        """Return the requested maximum length, by the name of its setting."""
        return {"max_length": self.asked}

    def data(self, examples: Examples, tokenizer: PreTrainedTokenizerBase, split: str) -> WordData:
        """Return the tokenised sentences."""
        words = cached_words(examples, tokenizer, self.max_length, f"tokenise {split}")
        for note in words.notes(split):
            say_cut(split, note)
        labels = first_piece_labels(words, tags_of(examples, self.tags))
        return WordData(ids=examples.ids, words=words, labels=labels, pad_id=int(tokenizer.pad_token_id))


def encoding(
    inputs: InputSettings, configs: Sequence[PreTrainedConfig], tokenizer: PreTrainedTokenizerBase
) -> Encoding:
    """Build the encoding, with the requested maximum length or the models' position limit if that is smaller."""
    asked = inputs.data.max_length
    limit = min([asked, *map(longest_input, configs)])
    cut = f"sentences are cut to {limit} tokens, not {asked}: the model has no more positions"
    tags = Labels.of_model(configs[0]).names
    return Encoding(max_length=limit, asked=asked, tags=tags, notes=(cut,) if limit < asked else ())


def tags_of(examples: Examples, names: Sequence[str]) -> Ints | None:
    """Return the tag index of each word, sentence after sentence; None for sentences without tags."""
    tags = examples.get("tags")
    return None if tags is None else encode_tags(tags, names, place_in(examples.source))


def offsets_of(examples: Examples) -> Ints:
    """Return the offset of each sentence's first word among all words, and the end of the last."""
    sizes = pc.list_value_length(examples["tokens"]).to_numpy(zero_copy_only=False)
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])


def read(inputs: InputSettings, teacher: Loaded | None) -> Read:
    """Read train, dev and test splits; with a teacher, in its order of tags."""
    data = inputs.data
    labels = Labels.of_model(teacher.model.config) if teacher else None
    if teacher is not None:
        refuse_texts(_file(data), data.encoding, teacher.name)
    parts = load(_file(data), _schema(data, labels), need_answers=not data.unlabelled)
    named = {"dev": parts.dev, "test": parts.test}
    scored = {
        name: _scored(examples, parts.source, name, parts.label_space)
        for name, examples in named.items()
        if examples is not None
    }
    return Read(splits=parts, scored=scored)


def to_select(read: Read, examples: Examples, split: str) -> Scored:
    """Return training sentences to select checkpoints by."""
    dev = read.scored["dev"]
    assert dev.labels is not None
    return _scored(examples, dev.task, split, dev.labels)


def read_texts(inputs: InputSettings) -> Examples:
    """Read sentences for a stage that needs no tags: a file, or a folder's train split."""
    return load_inputs(_file(inputs.data), tagging(text=inputs.data.text, encoding=inputs.data.encoding))


def read_to_score(inputs: InputSettings, model: Loaded, split: str | None) -> Scoring:
    """Read the split that a model is scored on, with its tags."""
    data, labels = inputs.data, Labels.of_model(model.model.config)
    path = _file(data)
    if split is not None and split not in SPLITS:
        raise UserError(f"--split {split}: choose from {', '.join(SPLITS)}")
    refuse_texts(path, data.encoding, model.name)
    examples = load_to_score(path, _schema(data, labels), split)
    return Scoring(scored=_scored(examples, path.resolve().name, scored_split(path, split), labels))


def calibration(train: Examples, teacher: Loaded, inputs: InputSettings) -> Calibration:
    """Return a calibration set: a few training sentences, tokenised for the teacher."""

    def batches(config: PreTrainedConfig) -> list[Inputs]:
        limit = min(inputs.data.max_length, TOKENS, longest_input(config))
        examples = train.take(spread(len(train)))
        words = tokenise_words(examples["tokens"], teacher.tokenizer, limit)
        pad, rows = int(teacher.tokenizer.pad_token_id), in_order(words.lengths, AT_ONCE)
        return [collate_words(words, None, examples.ids, index, pad, pad_to=1).inputs for index in rows]

    return Calibration(batches)


def _schema(data: DataSettings, labels: Labels | None) -> Schema:
    return tagging(text=data.text, label=data.label, labels=labels, encoding=data.encoding)


def _file(data: DataSettings) -> Path:
    if data.task is not None:
        raise UserError(f"--task {data.task}: no named task has a tag for each word; give a file or folder with --data")
    assert data.data is not None
    return Path(data.data)


def _scored(examples: Examples, task: str, split: str | None, labels: Labels) -> Scored:
    return Scored(task=task, split=split, examples=examples, gold=tags_of(examples, labels.names), labels=labels)
