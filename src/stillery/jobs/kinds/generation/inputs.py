"""Sources and targets: the splits of a run, and what a model is scored on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stillery.data.schema.examples import Examples
from stillery.data.schema.split_folders import PARTS, scored_part
from stillery.data.schema.text_examples import TextExamples, TextParts, load_text, load_text_to_score
from stillery.data.tasks.generation import TEXT_TASKS
from stillery.data.tasks.glue import TASKS
from stillery.data.tasks.glue_as_text import glue_as_text, label_words
from stillery.data.tasks.load import load_task, load_task_to_score
from stillery.data.tasks.specification import Task
from stillery.data.tasks.text_load import find_text_task, load_text_task, load_text_task_to_score
from stillery.errors import UserError
from stillery.evaluate.text_metrics import need_sacrebleu
from stillery.jobs.config.settings import DataSettings, InputSettings
from stillery.jobs.kinds.base import Read, Scored, Scoring
from stillery.models.load import Loaded

__all__ = ["read", "read_texts", "read_to_score"]


def read(inputs: InputSettings, teacher: Loaded | None = None) -> Read:
    """The splits of a file, folder or task; and dev and test as they are scored."""
    found = _read(inputs)
    need_scorer(found.scored.values())
    return found


def _read(inputs: InputSettings) -> Read:
    data = inputs.data
    _check_task(data)
    if data.task is None:
        assert data.data is not None
        parts = load_text(Path(data.data), source=inputs.generation.source, target=inputs.generation.target)
    elif data.task in TASKS:
        return _glue_splits(data)
    else:
        parts = load_text_task(data.task, _data_dir(data))
    named = {"dev": parts.dev, "test": parts.test}
    scored = {
        name: Scored(task=parts.source, split=name, examples=examples)
        for name, examples in named.items()
        if examples is not None
    }
    return Read(splits=parts, scored=scored)


def read_texts(inputs: InputSettings) -> TextExamples:
    """Sources and targets for the hidden-state stage: the training split of a file, folder or task."""
    train: TextExamples = _read(inputs).splits.train
    return train


def read_to_score(inputs: InputSettings, model: Loaded, split: str | None) -> Scoring:
    """What a model is scored on."""
    found = _to_score(inputs, split)
    need_scorer([found.scored])
    return found


def _to_score(inputs: InputSettings, split: str | None) -> Scoring:
    data = inputs.data
    _check_task(data)
    if data.task is None:
        assert data.data is not None
        if split is not None and split not in PARTS:
            raise UserError(f"--part {split}: choose from {', '.join(PARTS)}")
        path = Path(data.data)
        source, target = inputs.generation.source, inputs.generation.target
        examples = load_text_to_score(path, part=split, source=source, target=target)
        return Scoring(scored=Scored(task=path.resolve().name, split=scored_part(path, split), examples=examples))
    if data.task in TASKS:
        task = TASKS[data.task]
        found = load_task_to_score(data.task, task.labels, split, _data_dir(data))
        more = tuple(_glue_scored(task, name, examples) for name, examples in found.more.items())
        return Scoring(scored=_glue_scored(task, found.part, found.examples), more=more, notes=(found.source,))
    chosen = load_text_task_to_score(data.task, split, _data_dir(data))
    scored = Scored(task=data.task, split=chosen.part, examples=chosen.examples)
    return Scoring(scored=scored, notes=(chosen.source,))


def need_scorer(scored: Iterable[Scored]) -> None:
    """Refuse early what could not be scored in the end; texts that name classes need no further package."""
    if any(one.labels is None for one in scored):
        need_sacrebleu()


def _glue_splits(data: DataSettings) -> Read:
    """A task of GLUE with its classes, or scores, as words to generate."""
    assert data.task is not None
    task = TASKS[data.task]
    parts = load_task(data.task, data_dir=_data_dir(data))
    named = {"dev": parts.dev, "test": parts.test, **parts.more}
    scored = {name: _glue_scored(task, name, examples) for name, examples in named.items() if examples is not None}
    test = scored["test"].examples if "test" in scored else None
    found = TextParts(
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
    if data.task is not None and data.task not in TASKS and data.task not in TEXT_TASKS:
        find_text_task(data.task)


def _data_dir(data: DataSettings) -> Path | None:
    return None if data.data_dir is None else Path(data.data_dir)
