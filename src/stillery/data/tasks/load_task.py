"""Loading of named tasks for training, scoring or leaderboard submission."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from stillery.data.schema.answer_texts import expanded
from stillery.data.schema.examples import HELD_OUT, Examples, Splits, split
from stillery.data.schema.label_mapping import Mapped, map_labels, merged
from stillery.data.schema.labels import Labels
from stillery.data.schema.split_folders import SPLITS
from stillery.data.tasks import generation_rows, glue_rows
from stillery.data.tasks.generation import GENERATION_TASKS
from stillery.data.tasks.glue import TASKS
from stillery.data.tasks.layouts import Files
from stillery.data.tasks.packaged import movie_reviews
from stillery.data.tasks.specification import AnyTask, GenerationTask, Task
from stillery.data.tasks.task_files import Found, find
from stillery.errors import UserError, nearest

__all__ = [
    "GENERATION_TASKS",
    "TASKS",
    "GenerationTask",
    "Task",
    "ToScore",
    "find_generation_task",
    "find_task",
    "load_generation_task",
    "load_generation_task_to_score",
    "load_task",
    "load_task_test",
    "load_task_to_score",
    "merged",
]

MISMATCHED = "dev_mismatched"


@dataclass(frozen=True, kw_only=True, eq=False)
class ToScore:
    """The examples of a split to score on, and a description of their source.

    A task with classes has its `labels` in its own order, the model outputs that map to each class in `groups` (see
    `merged`), and a description of the mapping in `note`. `more` has further splits, such as MNLI's mismatched one.
    """

    task: AnyTask
    split: str
    examples: Examples
    source: str
    labels: Labels | None = None
    groups: tuple[tuple[int, ...], ...] | None = None
    note: str = ""
    more: Mapping[str, Examples] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """Functions for one kind of task that read its files, with a note on skipped rows, and check for answers."""

    read: Callable[[Any, str, Files, bool], tuple[Examples, str]]
    has_answers: Callable[[Any, Files], bool]


_LABELLED = _Reader(read=glue_rows.read_split, has_answers=glue_rows.has_labels)
_GENERATED = _Reader(
    read=lambda task, split, files, need: generation_rows.read_split(task, split, files),
    has_answers=lambda task, files: True,
)


def find_task(name: str) -> Task:
    """Return the classification or regression task of that name."""
    if name in GENERATION_TASKS:
        raise UserError(f"{name} is a text generation task; classifiers are for {', '.join(TASKS)}")
    if name not in TASKS:
        raise UserError(f"no task {name!r}; {nearest(name, TASKS)}")
    return TASKS[name]


def find_generation_task(name: str) -> GenerationTask:
    """Return the text generation task of that name."""
    if name not in GENERATION_TASKS:
        raise UserError(f"no text generation task {name!r}; {nearest(name, GENERATION_TASKS)}")
    return GENERATION_TASKS[name]


def load_task(
    name: str, labels: Labels | None = None, data_dir: Path | None = None, *, need_labels: bool = True
) -> Splits:
    """Load a task for training; given a teacher's labels, classes are in the teacher's order.

    Without a dev file, the dev split is held out of train; a test split without labels is skipped. Without
    `need_labels`, the labels of a train file are not read, unless dev is held out of it.
    """
    task = find_task(name)
    mapped = _one_to_one(task, labels) if labels is not None else None
    splits, notes = _to_train(task, data_dir, (*SPLITS, MISMATCHED), need_labels)
    if need_labels and len(np.unique(np.asarray(splits["train"].labels))) < 2:
        raise UserError(f"{splits['train'].source}: all labels are the same; training needs at least two")
    space = task.labels
    if labels is not None and mapped is not None:
        splits = {split: _in_order(examples, mapped, task.labels) for split, examples in splits.items()}
        space = _teachers(labels, mapped, task.labels)
        notes += [mapped.note] if labels.names != task.labels.names else []
    return _splits(task, splits, notes, space)


def load_generation_task(name: str, data_dir: Path | None = None) -> Splits:
    """Load a text generation task for training; in the train split each reference becomes an example of its own.

    Without a dev file, the dev split is held out of train, split by sources.
    """
    task = find_generation_task(name)
    splits, notes = _to_train(task, data_dir, tuple(SPLITS))
    return _splits(task, splits | {"train": expanded(splits["train"])}, notes)


def load_task_to_score(name: str, labels: Labels, split: str | None = None, data_dir: Path | None = None) -> ToScore:
    """Load the examples to score a model with these labels: the given split, else test if it has labels, else dev."""
    task = find_task(name)
    _check_split(split, (*SPLITS, MISMATCHED))
    mapped = map_labels(labels, task.labels, name, task.merges)
    found = _to_score(task, split, data_dir)
    return replace(found, labels=task.labels, groups=mapped.groups, note=mapped.note)


def load_generation_task_to_score(name: str, split: str | None = None, data_dir: Path | None = None) -> ToScore:
    """Load the examples to score a model: the given split, else test, else dev; each with all its references."""
    task = find_generation_task(name)
    _check_split(split, tuple(SPLITS))
    return _to_score(task, split, data_dir)


def load_task_test(name: str, data_dir: Path | None = None) -> dict[str, Examples]:
    """Load the full test splits of a GLUE task without labels, by the name of the leaderboard file of each."""
    task = find_task(name)
    if not task.submissions:
        raise UserError(f"{name} has no leaderboard; GLUE's tasks are {', '.join(_submitted())}")
    found = find(task, data_dir)
    missing = [split for split in task.submissions if split not in found.files]
    if missing:
        raise UserError(f"{name}: no {' and no '.join(missing)} split in {found.where}; add the official test files")
    return {file: glue_rows.read_texts(task, split, found.files[split]) for split, file in task.submissions.items()}


def _submitted() -> list[str]:
    return [name for name, task in TASKS.items() if task.submissions]


def _check_split(split: str | None, known: Sequence[str]) -> None:
    if split is not None and split not in known:
        raise UserError(f"no split {split!r}; {nearest(split, known)}")


def _to_train(
    task: AnyTask, data_dir: Path | None, wanted: tuple[str, ...], need: bool = True
) -> tuple[dict[str, Examples], list[str]]:
    """Load the splits of a task; raise UserError if it has no train split."""
    found = find(task, data_dir)
    if "train" not in found.splits:
        cure = f", or leave out --data-dir and download it with `stillery tasks fetch {task.name}`" if task.hub else ""
        raise UserError(
            f"{task.name}: no train split in {found.where}, so models can be scored on it but not trained; "
            f"add a train file{cure}"
        )
    return _read(task, found, wanted, need)


def _to_score(task: AnyTask, split: str | None, data_dir: Path | None) -> ToScore:
    """Load the given split, else test if it has answers, else dev."""
    found = find(task, data_dir)
    chosen = split or ("test" if _answered(task, found, "test") else "dev")
    splits, notes = _read(task, found, (chosen, MISMATCHED) if chosen == "dev" else (chosen,))
    if chosen not in splits:
        there = ", ".join(one for one in found.splits if _answered(task, found, one))
        what = "split" if isinstance(task, GenerationTask) else "split with labels"
        raise UserError(f"{task.name}: no {chosen} {what} in {found.where}; choose from {there or 'none'}")
    more = {one: examples for one, examples in splits.items() if one == MISMATCHED != chosen}
    return ToScore(task=task, split=chosen, examples=splits[chosen], source="; ".join(notes), more=more)


def _splits(
    task: AnyTask, splits: Mapping[str, Examples], notes: Sequence[str], labels: Labels | None = None
) -> Splits:
    return Splits(
        train=splits["train"],
        dev=splits["dev"],
        test=splits.get("test"),
        labels=labels,
        source=task.name,
        note="; ".join(notes),
        metrics=task.metrics,
        more={split: examples for split, examples in splits.items() if split == MISMATCHED},
    )


def _reader(task: AnyTask) -> _Reader:
    return _GENERATED if isinstance(task, GenerationTask) else _LABELLED


def _answered(task: AnyTask, found: Found, split: str) -> bool:
    if found.package is not None:
        return split in found.splits
    return split in found.files and _reader(task).has_answers(task, found.files[split])


def _read(
    task: AnyTask, found: Found, wanted: Sequence[str], need: bool = True
) -> tuple[dict[str, Examples], list[str]]:
    """Read those of the wanted splits that exist, with labels in the task's order, and notes on their source."""
    if found.package is not None:
        assert task.package is not None
        whole, note = movie_reviews(found.package, task.package, task.name)
        return {name: examples for name, examples in whole.items() if name in wanted}, [note]
    notes = [f"{task.name} is read from {found.where}"]
    splits: dict[str, Examples] = {}
    held_out = "dev" not in found.files and "train" in found.files and not {"train", "dev"}.isdisjoint(wanted)
    for name, files in found.files.items():
        if name not in wanted and not (held_out and name == "train"):
            continue
        answered = _answered(task, found, name)
        if not answered and name == "test":
            notes.append(f"{files.names} has no labels and is left out")
            continue
        needed = need or name != "train" or (held_out and answered)
        splits[name], left_out = _reader(task).read(task, name, files, needed)
        notes += [left_out] if left_out else []
    if held_out:
        splits["train"], splits["dev"] = split(splits["train"], HELD_OUT)
        notes.append(f"no dev file: {len(splits['dev'])} of the train rows are held out as the dev split")
    return {name: examples for name, examples in splits.items() if name in wanted}, notes


def _one_to_one(task: Task, labels: Labels) -> Mapped:
    mapped = map_labels(labels, task.labels, task.name, task.merges)
    if not mapped.one_to_one:
        raise UserError(
            f"a model with {labels.count} labels ({', '.join(labels.names)}) cannot teach {task.name}, which has "
            f"{task.labels.count} ({', '.join(task.labels.names)}); use a model fine-tuned on it"
        )
    return mapped


def _in_order(examples: Examples, mapped: Mapped, task: Labels) -> Examples:
    """Reorder class indices to the order of a model's outputs."""
    if task.regression or examples.labels is None:
        return examples
    order = np.array([group[0] for group in mapped.groups], dtype=np.int64)
    return replace(examples, labels=order[examples.labels])


def _teachers(labels: Labels, mapped: Mapped, task: Labels) -> Labels:
    """A model's labels, with the one that maps to the task's positive class as `positive`."""
    if task.positive is None:
        return labels
    return replace(labels, positive=labels.names[mapped.groups[task.names.index(task.positive)][0]])
