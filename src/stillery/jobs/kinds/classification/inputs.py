"""Data of classifiers, labelled texts: the splits of a run, those that are scored, and the encoding."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from stillery.data.schema.answer_labels import classification
from stillery.data.schema.examples import Examples, Splits
from stillery.data.schema.label_map import check_label_map, parse_label_map
from stillery.data.schema.label_mapping import map_labels
from stillery.data.schema.labels import Labels
from stillery.data.schema.load_splits import load, load_inputs, load_to_score
from stillery.data.schema.roles import Schema
from stillery.data.schema.split_folders import SPLITS, scored_split
from stillery.data.tasks.load_task import find_task, load_task, load_task_to_score
from stillery.data.tokens.batches import in_order
from stillery.data.tokens.collate import collate
from stillery.data.tokens.encode import Tokens, tokenise
from stillery.data.tokens.token_cache import cached_tokens
from stillery.errors import UserError
from stillery.evaluation.ranking_metrics import Queries
from stillery.evaluation.ranking_report import check_ranking
from stillery.jobs.calibration import AT_ONCE, TOKENS, Calibration, Inputs, spread
from stillery.jobs.config.settings import DataSettings, InputSettings
from stillery.jobs.cut_texts import say_cut
from stillery.jobs.kinds.base import Read, Scored, Scoring
from stillery.lines import listed
from stillery.models.family import longest_input
from stillery.models.load_model import Loaded
from stillery.train.trainable import TrainingData

__all__ = [
    "Encoding",
    "calibration",
    "encoding",
    "groups_of",
    "read",
    "read_texts",
    "read_to_score",
    "texts_alone",
    "tokens_of",
]

Groups = tuple[tuple[int, ...], ...]
"""For each scored class, the model outputs that stand for it."""


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The tokenisation of texts for a classifier, and the mapping of its outputs to classes.

    Attributes:
        max_length: the maximum text length in tokens, within the position limits of the models.
        asked: the requested maximum length.
        groups: the outputs that stand for each scored class; None where outputs and classes are the same.
        notes: messages for the user.
    """

    max_length: int
    asked: int
    groups: Groups | None = None
    notes: tuple[str, ...] = ()

    def settings(self) -> dict[str, Any]:
        """Return the requested maximum length, by the name of its setting."""
        return {"max_length": self.asked}

    def data(self, examples: Examples, tokenizer: PreTrainedTokenizerBase, split: str) -> TrainingData:
        """Return the tokenised examples."""
        tokens = tokens_of(examples, tokenizer, self.max_length, split)
        return TrainingData(examples=examples, tokens=tokens, pad_id=int(tokenizer.pad_token_id))


def encoding(
    inputs: InputSettings, configs: Sequence[PreTrainedConfig], tokenizer: PreTrainedTokenizerBase
) -> Encoding:
    """Build the encoding, with the requested maximum length or the models' position limit if that is smaller."""
    asked = inputs.data.max_length
    limit = min([asked, *map(longest_input, configs)])
    cut = f"texts are cut to {limit} tokens, not {asked}: the model has no more positions"
    return Encoding(max_length=limit, asked=asked, notes=(cut,) if limit < asked else ())


def read(inputs: InputSettings, teacher: Loaded | None) -> Read:
    """Read train, dev and test splits; with a teacher, in its order of classes."""
    parts = _splits(inputs.data, Labels.of_model(teacher.model.config) if teacher else None)
    named = {"dev": parts.dev, "test": parts.test, **parts.more}
    scored = {
        name: Scored(
            task=parts.source, split=name, examples=examples, gold=examples.labels, labels=parts.label_space,
            metrics=parts.metrics,
        )
        for name, examples in named.items()
        if examples is not None
    }  # fmt: skip
    for one in scored.values():
        _check_queries(one)
    return Read(splits=parts, scored=scored)


def _splits(data: DataSettings, labels: Labels | None) -> Splits:
    check_label_options(data, labels)
    if data.task is not None:
        parts = load_task(data.task, labels, _data_dir(data), need_labels=not data.unlabelled)
        bare = dataclasses.replace(parts.train, labels=None)
        return dataclasses.replace(parts, train=bare) if data.unlabelled else parts
    assert data.data is not None
    return load(Path(data.data), _schema(data, labels), need_answers=not data.unlabelled)


def _schema(data: DataSettings, labels: Labels | None) -> Schema:
    """Return the schema of files with labelled texts."""
    return classification(
        text=data.text,
        text_pair=data.text_pair,
        label=data.label,
        query=data.query,
        labels=labels,
        regression=data.regression,
        multi_label=data.multi_label,
        label_separator=data.label_separator,
        max_classes=data.max_classes,
        label_map=parse_label_map(data.label_map),
        encoding=data.encoding,
        skip_empty=data.skip_empty,
    )


def read_texts(inputs: InputSettings) -> Examples:
    """Read texts for a stage that needs no labels: a file, a folder's train split, or a task's training split."""
    data = inputs.data
    if data.task is not None:
        return dataclasses.replace(load_task(data.task, data_dir=_data_dir(data)).train, labels=None)
    assert data.data is not None
    return load_inputs(Path(data.data), texts_alone(data))


def texts_alone(data: DataSettings) -> Schema:
    """Return the schema of files of which only the texts are used."""
    return classification(text=data.text, text_pair=data.text_pair, encoding=data.encoding, skip_empty=data.skip_empty)


def read_to_score(inputs: InputSettings, model: Loaded, split: str | None) -> Scoring:
    """Read the split that a model is scored on, with the classes of the task or of the model."""
    data, labels = inputs.data, Labels.of_model(model.model.config)
    check_label_options(data, labels)
    if data.task is not None:
        found = load_task_to_score(data.task, labels, split, _data_dir(data))
        several = {found.split: found.examples, **found.more}
        first, *more = (
            Scored(
                task=data.task, split=name, examples=examples, gold=examples.labels, labels=found.labels,
                metrics=found.task.metrics,
            )
            for name, examples in several.items()
        )  # fmt: skip
        return Scoring(scored=first, more=tuple(more), notes=(found.source, found.note), groups=found.groups)
    assert data.data is not None
    if split is not None and split not in SPLITS:
        raise UserError(f"--split {split}: choose from {', '.join(SPLITS)}")
    path = Path(data.data)
    examples = load_to_score(path, _schema(data, labels), split)
    name, found_split = path.resolve().name, scored_split(path, split)
    scored = Scored(task=name, split=found_split, examples=examples, gold=examples.labels, labels=labels)
    _check_queries(scored)
    return Scoring(scored=scored)


def _check_queries(scored: Scored) -> None:
    """Raise UserError for a split whose queries cannot be ranked."""
    query = scored.examples.get("query")
    if query is not None and scored.gold is not None and scored.labels is not None:
        where = f"{scored.task}{f' ({scored.split})' if scored.split else ''}"
        check_ranking(scored.gold, scored.labels, Queries.of(query), where)


def groups_of(scoring: Scoring, model: Loaded) -> Groups:
    """Map the outputs of another model, which has its own labels, to the scored classes."""
    scored, labels = scoring.scored, Labels.of_model(model.model.config)
    if scoring.groups is not None:
        task = find_task(scored.task)
        try:
            return map_labels(labels, task.labels, task.name, task.merges).groups
        except UserError as error:
            raise UserError(f"--against {model.name}: {error}") from None
    ours = scored.labels
    assert ours is not None
    if ours.kind != labels.kind or set(ours.names) != set(labels.names):
        raise UserError(
            f"--against {model.name}: its labels ({listed(labels.names)}) are not the model's "
            f"({listed(ours.names)}), so the two cannot be compared"
        )
    return tuple((labels.names.index(label),) for label in ours.names) if not ours.regression else ((0,),)


def calibration(train: Examples, teacher: Loaded, inputs: InputSettings) -> Calibration:
    """Return a calibration set: a few training texts, tokenised for the teacher."""

    def batches(config: PreTrainedConfig) -> list[Inputs]:
        limit = min(inputs.data.max_length, TOKENS, longest_input(config))
        examples = train.take(spread(len(train)))
        tokens, pad = tokenise(examples, teacher.tokenizer, limit), int(teacher.tokenizer.pad_token_id)
        rows = in_order(tokens.lengths, AT_ONCE)
        return [collate(examples, tokens, index, pad, pad_to=1).inputs for index in rows]

    return Calibration(batches)


def _data_dir(data: DataSettings) -> Path | None:
    return None if data.data_dir is None else Path(data.data_dir)


def check_label_options(data: DataSettings, labels: Labels | None) -> None:
    """Raise UserError for label options of another type than the model's: scores as classes, several labels as one."""
    if data.label_separator is not None and not data.multi_label:
        raise UserError("--label-separator is for labels of --multi-label, which is not given")
    if data.label_separator == "":
        raise UserError("--label-separator is empty: give what stands between two labels, such as ';'")
    if data.multi_label and data.regression:
        raise UserError("--multi-label cannot go with --regression: several labels are no score")
    names = parse_label_map(data.label_map)
    if names and data.regression:
        raise UserError("--label-map cannot go with --regression: scores have no names")
    if labels is not None:
        check_label_map(names, labels)
    if labels is not None and data.multi_label not in (None, labels.multi):
        option, gives = ("--multi-label", "one label") if data.multi_label else ("--no-multi-label", "several labels")
        raise UserError(f"{option}: the model gives {gives} per text; leave the option out")
    if labels is not None and data.regression not in (None, labels.regression):
        option, gives = ("--regression", "classes") if data.regression else ("--no-regression", "a number")
        raise UserError(f"{option}: the model predicts {gives}; leave the option out")


def tokens_of(examples: Examples, tokenizer: PreTrainedTokenizerBase, limit: int, split: str) -> Tokens:
    """Tokenise a split; reports how many texts were truncated."""
    tokens = cached_tokens(examples, tokenizer, limit, f"tokenise {split}")
    if tokens.truncated:
        say_cut(
            split, f"{split}: {tokens.truncated} of {len(examples)} texts are longer than {limit} tokens and were cut"
        )
    return tokens
