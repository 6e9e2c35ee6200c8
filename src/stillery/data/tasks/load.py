"""Tasks known by name, loaded to train on, to score on, or to submit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from stillery.data.schema.examples import HELD_OUT, Examples, Parts, split
from stillery.data.schema.label_mapping import Mapped, map_labels, merged
from stillery.data.schema.labels import Labels
from stillery.data.tasks.generation import TEXT_TASKS
from stillery.data.tasks.glue import TASKS
from stillery.data.tasks.locate import Found, find
from stillery.data.tasks.packaged import movie_reviews
from stillery.data.tasks.specification import Task
from stillery.data.tasks.split_files import has_labels, read_part, read_texts
from stillery.errors import UserError, nearest

__all__ = [
    "TASKS",
    "Task",
    "ToScore",
    "find_task",
    "load_task",
    "load_task_test",
    "load_task_to_score",
    "merged",
]

SCORED = ("train", "dev", "test")
MISMATCHED = "dev_mismatched"


@dataclass(frozen=True, kw_only=True, eq=False)
class ToScore:
    """What a model is scored on: examples with the task's own labels, and which outputs mean which of them.

    `groups` has for each class of the task the model's outputs that mean it (see `merged`), `note` says the same in
    words; `source` is where the examples are from; `more` has further parts, such as MNLI's mismatched one.
    """

    task: Task
    part: str
    examples: Examples
    labels: Labels
    groups: tuple[tuple[int, ...], ...]
    note: str
    source: str
    more: Mapping[str, Examples] = field(default_factory=dict)


def find_task(name: str) -> Task:
    """The task of that name."""
    if name in TEXT_TASKS:
        raise UserError(f"{name} is a task of writing text; classifiers are for {', '.join(TASKS)}")
    if name not in TASKS:
        raise UserError(f"no task {name!r}; {nearest(name, TASKS)}")
    return TASKS[name]


def load_task(
    name: str, labels: Labels | None = None, data_dir: Path | None = None, *, need_labels: bool = True
) -> Parts:
    """Load a task to train on; given a teacher's labels, in the teacher's order of classes.

    Without a dev file the dev part is held out of train; a test part without labels is left out. Without `need_labels`
    those of a train file are not read, unless dev is held out of it.
    """
    task = find_task(name)
    mapped = _one_to_one(task, labels) if labels is not None else None
    found = find(task, data_dir)
    if "train" not in found.parts:
        cure = f", or leave out --data-dir and download it with `stillery tasks fetch {name}`" if task.hub else ""
        raise UserError(
            f"{name}: no train part in {found.where}, so models can be scored on it but not trained; "
            f"add a train file{cure}"
        )
    parts, notes = _read(task, found, (*SCORED, MISMATCHED), need_labels)
    if need_labels and len(np.unique(np.asarray(parts["train"].labels))) < 2:
        raise UserError(f"{parts['train'].source}: all labels are the same; training needs at least two")
    space = task.labels
    if labels is not None and mapped is not None:
        parts = {part: _in_order(examples, mapped, task.labels) for part, examples in parts.items()}
        space = _teachers(labels, mapped, task.labels)
        notes += [mapped.note] if labels.names != task.labels.names else []
    return Parts(
        train=parts["train"],
        dev=parts["dev"],
        test=parts.get("test"),
        labels=space,
        source=name,
        note="; ".join(notes),
        metrics=task.metrics,
        more={part: examples for part, examples in parts.items() if part == MISMATCHED},
    )


def load_task_to_score(name: str, labels: Labels, part: str | None = None, data_dir: Path | None = None) -> ToScore:
    """Load what a model with these labels is scored on: the part named, else test where it has labels, else dev."""
    task = find_task(name)
    if part is not None and part not in (*SCORED, MISMATCHED):
        raise UserError(f"no part {part!r}; {nearest(part, (*SCORED, MISMATCHED))}")
    mapped = map_labels(labels, task.labels, name, task.merges)
    found = find(task, data_dir)
    chosen = part or ("test" if _labelled(task, found, "test") else "dev")
    wanted = (chosen, MISMATCHED) if chosen == "dev" else (chosen,)
    parts, notes = _read(task, found, wanted)
    if chosen not in parts:
        there = ", ".join(one for one in found.parts if _labelled(task, found, one))
        raise UserError(f"{name}: no {chosen} part with labels in {found.where}; choose from {there or 'none'}")
    return ToScore(
        task=task,
        part=chosen,
        examples=parts[chosen],
        labels=task.labels,
        groups=mapped.groups,
        note=mapped.note,
        source="; ".join(notes),
        more={one: examples for one, examples in parts.items() if one == MISMATCHED != chosen},
    )


def load_task_test(name: str, data_dir: Path | None = None) -> dict[str, Examples]:
    """The whole test parts of a GLUE task without labels, by the name of the leaderboard's file for each."""
    task = find_task(name)
    if not task.submissions:
        raise UserError(f"{name} has no leaderboard; GLUE's tasks are {', '.join(_submitted())}")
    found = find(task, data_dir)
    missing = [part for part in task.submissions if part not in found.files]
    if missing:
        raise UserError(f"{name}: no {' and no '.join(missing)} part in {found.where}; add the official test files")
    return {file: read_texts(task, part, found.files[part]) for part, file in task.submissions.items()}


def _one_to_one(task: Task, labels: Labels) -> Mapped:
    mapped = map_labels(labels, task.labels, task.name, task.merges)
    if not mapped.one_to_one:
        raise UserError(
            f"a model with {labels.count} labels ({', '.join(labels.names)}) cannot teach {task.name}, which has "
            f"{task.labels.count} ({', '.join(task.labels.names)}); use a model fine-tuned on it"
        )
    return mapped


def _submitted() -> list[str]:
    return [name for name, task in TASKS.items() if task.submissions]


def _labelled(task: Task, found: Found, part: str) -> bool:
    if found.package is not None:
        return part in found.parts
    return part in found.files and has_labels(task, found.files[part])


def _read(
    task: Task, found: Found, wanted: tuple[str, ...], need_labels: bool = True
) -> tuple[dict[str, Examples], list[str]]:
    """The parts that are wanted and there, labelled in the task's order; and in words what they are made of."""
    if found.package is not None:
        assert task.package is not None
        parts, note = movie_reviews(found.package, task.package, task.name)
        return {part: examples for part, examples in parts.items() if part in wanted}, [note]
    notes = [f"{task.name} is read from {found.where}"]
    parts = {}
    held_out = "dev" not in found.files and "train" in found.files and not {"train", "dev"}.isdisjoint(wanted)
    for part in found.files:
        if part not in wanted and not (held_out and part == "train"):
            continue
        if not _labelled(task, found, part) and part == "test":
            notes.append(f"{found.files[part].names} has no labels and is left out")
            continue
        needed = need_labels or part != "train" or (held_out and _labelled(task, found, part))
        parts[part], left_out = read_part(task, part, found.files[part], need_labels=needed)
        notes += [left_out] if left_out else []
    if held_out:
        parts["train"], parts["dev"] = split(parts["train"], HELD_OUT)
        notes.append(f"no dev file: {len(parts['dev'])} of the train rows are held out as the dev part")
    return {part: examples for part, examples in parts.items() if part in wanted}, notes


def _in_order(examples: Examples, mapped: Mapped, task: Labels) -> Examples:
    """The examples with labels in the order of a model's outputs."""
    if task.regression or examples.labels is None:
        return examples
    order = np.array([group[0] for group in mapped.groups], dtype=np.int64)
    return replace(examples, labels=order[examples.labels])


def _teachers(labels: Labels, mapped: Mapped, task: Labels) -> Labels:
    """A model's labels, with the one that means the task's positive class marked."""
    if task.positive is None:
        return labels
    return replace(labels, positive=labels.names[mapped.groups[task.names.index(task.positive)][0]])
