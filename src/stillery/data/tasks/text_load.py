"""Tasks of writing text known by name, loaded to train on or to score on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stillery.data.schema.examples import HELD_OUT
from stillery.data.schema.split_folders import PARTS
from stillery.data.schema.text_examples import TextExamples, TextParts, expanded, split_text
from stillery.data.tasks.generation import TEXT_TASKS, TextTask
from stillery.data.tasks.locate import Found, find
from stillery.data.tasks.text_split_files import read_text_part
from stillery.errors import UserError, nearest

__all__ = ["TEXT_TASKS", "TextTask", "TextToScore", "find_text_task", "load_text_task", "load_text_task_to_score"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TextToScore:
    """The part a model is scored on, and in words where it is from and what was left out."""

    part: str
    examples: TextExamples
    source: str


def find_text_task(name: str) -> TextTask:
    """The task of writing text of that name."""
    if name not in TEXT_TASKS:
        raise UserError(f"no task {name!r} of writing text; {nearest(name, TEXT_TASKS)}")
    return TEXT_TASKS[name]


def load_text_task(name: str, data_dir: Path | None = None) -> TextParts:
    """Load a task to train on; in the train part each reference makes an example of its own.

    Without a dev file the dev part is held out of train by its sources.
    """
    task = find_text_task(name)
    found = find(task, data_dir)
    if "train" not in found.parts:
        cure = f", or leave out --data-dir and download it with `stillery tasks fetch {name}`" if task.hub else ""
        raise UserError(
            f"{name}: no train part in {found.where}, so models can be scored on it but not trained; "
            f"add a train file{cure}"
        )
    parts, notes = _read(task, found, tuple(PARTS))
    return TextParts(
        train=expanded(parts["train"]),
        dev=parts["dev"],
        test=parts.get("test"),
        source=name,
        note="; ".join(notes),
        metrics=task.metrics,
    )


def load_text_task_to_score(name: str, part: str | None = None, data_dir: Path | None = None) -> TextToScore:
    """Load what a model is scored on: the part named, else test, else dev; each example has all its references."""
    task = find_text_task(name)
    if part is not None and part not in PARTS:
        raise UserError(f"no part {part!r}; {nearest(part, PARTS)}")
    found = find(task, data_dir)
    chosen = part or ("test" if "test" in found.parts else "dev")
    parts, notes = _read(task, found, (chosen,))
    if chosen not in parts:
        raise UserError(f"{name}: no {chosen} part in {found.where}; choose from {', '.join(found.parts)}")
    return TextToScore(part=chosen, examples=parts[chosen], source="; ".join(notes))


def _read(task: TextTask, found: Found, wanted: tuple[str, ...]) -> tuple[dict[str, TextExamples], list[str]]:
    """The parts that are wanted and there, and in words what they are made of."""
    notes = [f"{task.name} is read from {found.where}"]
    parts: dict[str, TextExamples] = {}
    held_out = "dev" not in found.files and "train" in found.files and not {"train", "dev"}.isdisjoint(wanted)
    for part, files in found.files.items():
        if part in wanted or (held_out and part == "train"):
            parts[part], left_out = read_text_part(task, part, files)
            notes += [left_out] if left_out else []
    if held_out:
        parts["train"], parts["dev"] = split_text(parts["train"], HELD_OUT)
        notes.append(f"no dev file: {len(parts['dev'])} of the train rows are held out as the dev part")
    return {part: examples for part, examples in parts.items() if part in wanted}, notes
