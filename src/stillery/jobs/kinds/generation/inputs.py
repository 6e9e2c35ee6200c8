"""Data of text generation models, sources and targets: the splits of a run, and those that models are scored on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stillery.data.schema.answer_texts import generation
from stillery.data.schema.examples import Examples, Splits
from stillery.data.schema.load_splits import load, load_to_score
from stillery.data.schema.roles import Schema
from stillery.data.schema.split_folders import SPLITS, scored_split
from stillery.data.tasks.generation import GENERATION_TASKS
from stillery.data.tasks.glue import TASKS
from stillery.data.tasks.glue_as_text import glue_as_text, label_words
from stillery.data.tasks.load_task import (
    find_generation_task,
    load_generation_task,
    load_generation_task_to_score,
    load_task,
    load_task_to_score,
)
from stillery.data.tasks.specification import Task
from stillery.errors import UserError
from stillery.evaluation.text_metrics import need_sacrebleu
from stillery.jobs.config.settings import DataSettings, InputSettings
from stillery.jobs.kinds.base import Read, Scored, Scoring
from stillery.models.load_model import Loaded

__all__ = ["read", "read_texts", "read_to_score", "to_select"]


def read(inputs: InputSettings, teacher: Loaded | None = None) -> Read:
    """Read the splits of a file, folder or task, with dev and test prepared for scoring."""
    found = _read(inputs)
    need_scorer(found.scored.values())
    return found


def _read(inputs: InputSettings) -> Read:
    data = inputs.data
    _check_task(data)
    if data.task is None:
        assert data.data is not None
        parts = load(Path(data.data), _schema(inputs))
    elif data.task in TASKS:
        return _glue_splits(data)
    else:
        parts = load_generation_task(data.task, _data_dir(data))
    named = {"dev": parts.dev, "test": parts.test}
    scored = {
        name: Scored(task=parts.source, split=name, examples=examples)
        for name, examples in named.items()
        if examples is not None
    }
    return Read(splits=parts, scored=scored)


def _schema(inputs: InputSettings) -> Schema:
    """Return the schema of files with sources and targets."""
    asked, data = inputs.generation, inputs.data
    return generation(asked.source, asked.target, encoding=data.encoding, skip_empty=data.skip_empty)


def to_select(read: Read, examples: Examples, split: str) -> Scored:
    """Return training examples to select checkpoints by: by the likelihood of their targets, so without classes."""
    return Scored(task=read.scored["dev"].task, split=split, examples=examples)


def read_texts(inputs: InputSettings) -> Examples:
    """Read sources and targets for the hidden-state stage: the training split of a file, folder or task."""
    train: Examples = _read(inputs).splits.train
    return train


def read_to_score(inputs: InputSettings, model: Loaded, split: str | None) -> Scoring:
    """Read the split that a model is scored on."""
    found = _to_score(inputs, split)
    need_scorer([found.scored])
    return found


def _to_score(inputs: InputSettings, split: str | None) -> Scoring:
    data = inputs.data
    _check_task(data)
    if data.task is None:
        assert data.data is not None
        if split is not None and split not in SPLITS:
            raise UserError(f"--split {split}: choose from {', '.join(SPLITS)}")
        path = Path(data.data)
        examples = load_to_score(path, _schema(inputs), split)
        return Scoring(scored=Scored(task=path.resolve().name, split=scored_split(path, split), examples=examples))
    if data.task in TASKS:
        task = TASKS[data.task]
        found = load_task_to_score(data.task, task.labels, split, _data_dir(data))
        more = tuple(_glue_scored(task, name, examples) for name, examples in found.more.items())
        return Scoring(scored=_glue_scored(task, found.split, found.examples), more=more, notes=(found.source,))
    chosen = load_generation_task_to_score(data.task, split, _data_dir(data))
    scored = Scored(task=data.task, split=chosen.split, examples=chosen.examples)
    return Scoring(scored=scored, notes=(chosen.source,))


def need_scorer(scored: Iterable[Scored]) -> None:
    """Raise UserError early if the package for BLEU and chrF is missing; texts that name classes need none."""
    if any(one.labels is None for one in scored):
        need_sacrebleu()


def _glue_splits(data: DataSettings) -> Read:
    """Return the splits of a GLUE task with its classes, or scores, as words to generate."""
    assert data.task is not None
    task = TASKS[data.task]
    parts = load_task(data.task, data_dir=_data_dir(data))
    named = {"dev": parts.dev, "test": parts.test, **parts.more}
    scored = {name: _glue_scored(task, name, examples) for name, examples in named.items() if examples is not None}
    test = scored["test"].examples if "test" in scored else None
    found = Splits(
        train=glue_as_text(task, parts.train), dev=scored["dev"].examples, test=test, source=parts.source,
        note=parts.note, metrics=parts.metrics,
    )  # fmt: skip
    return Read(splits=found, scored=scored)


def _glue_scored(task: Task, split: str, examples: Examples) -> Scored:
    assert examples.labels is not None
    return Scored(
        task=task.name,
        split=split,
        examples=glue_as_text(task, examples),
        labels=task.labels,
        words=label_words(task),
        gold=examples.labels,
        metrics=task.metrics,
    )


def _check_task(data: DataSettings) -> None:
    if data.task is not None and data.task not in TASKS and data.task not in GENERATION_TASKS:
        find_generation_task(data.task)


def _data_dir(data: DataSettings) -> Path | None:
    return None if data.data_dir is None else Path(data.data_dir)
