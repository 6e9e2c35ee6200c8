"""Suggestions of what to run after a finished run, as commands to copy and paste."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillery.jobs.config.settings import DataSettings, Distill, Finetune, GenerationSettings, SearchSettings
from stillery.lines import command_line, width_of
from stillery.setting import option_name

if TYPE_CHECKING:
    from stillery.jobs.result import Result

__all__ = ["next_commands", "show_next"]

# Inherited settings: the commands take them from the model's run.
_INHERITED = {"max_length", "max_target_length", "prompt", "prefix"}
# For `stillery predict` only the options on how the file is read.
_WRITTEN = {".csv", ".tsv", ".parquet", ".jsonl"}
_TO_PREDICT = {"text", "text_pair", "encoding", "skip_empty", "source"}


def next_commands(run: Finetune | Distill, result: Result) -> list[list[str]]:
    """Return the commands: distil after fine-tuning; after distilling, evaluate against the teacher, and predict."""
    read = _options(run.data, run.generation)
    search = _options(run.search)
    if isinstance(run, Finetune):
        out = _new(f"{result.out}-small")
        return [
            ["stillery", "distill", "--teacher", str(result.out), *read, *search, *_half_as_deep(result), "--out", out]
        ]
    found = []
    if not run.data.unlabelled:
        split = ["--split", result.metrics["split"]]
        found.append(["stillery", "evaluate", str(result.out), *read, *split, "--against", run.teacher])
    if run.data.data is not None and Path(run.data.data).is_file():
        columns = _options(run.data, run.generation, only=_TO_PREDICT)
        suffix = Path(run.data.data).suffix
        out = _new(f"{result.out}-predictions{suffix if suffix in _WRITTEN else '.jsonl'}")
        found.append(["stillery", "predict", str(result.out), "--data", run.data.data, *columns, "--out", out])
    return found


def show_next(run: Finetune | Distill, result: Result) -> None:
    """Print the commands, each ready to be pasted into a shell."""
    width = width_of(sys.stdout)
    commands = next_commands(run, result)
    if commands:
        print("next:")
    for words in commands:
        print(command_line(words, width))


def _options(*groups: DataSettings | GenerationSettings | SearchSettings, only: set[str] | None = None) -> list[str]:
    """Return the settings of groups as options, without those at their default and inherited ones."""
    words: list[str] = []
    for group in groups:
        for item in dataclasses.fields(group):
            value: Any = getattr(group, item.name)
            wanted = item.name not in _INHERITED if only is None else item.name in only
            if not wanted or value == item.default:
                continue
            name = option_name(item.name)
            if isinstance(value, bool):
                words.append(name if value else f"--no-{name[2:]}")
            else:
                words += [name, str(value)]
    return words


def _half_as_deep(result: Result) -> list[str]:
    """Return the options for a student with half the layers."""
    from stillery.models.family import sizes, stacks_of
    from stillery.models.load_model import read_config

    config = read_config(str(result.student))
    stacks = stacks_of(config)
    names = ["--layers"] if len(stacks) == 1 else [f"--{stack}-layers" for stack in stacks]
    depths = [max(1, sizes(config, stack).layers // 2) for stack in stacks]
    return [word for name, depth in zip(names, depths, strict=True) for word in (name, str(depth))]


def _new(place: str) -> str:
    """Return a path that does not exist yet: the same, or with a number appended."""
    path, number = Path(place), 2
    while path.exists():
        path = Path(place).with_name(f"{Path(place).stem}-{number}{Path(place).suffix}")
        number += 1
    return str(path)
