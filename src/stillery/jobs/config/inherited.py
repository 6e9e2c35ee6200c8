"""Settings inherited from the run that trained a model, so that texts are tokenised as in its training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from stillery.data.tasks.generation import GENERATION_TASKS
from stillery.data.tokens.encode_generation import PROMPT
from stillery.errors import ErrorList
from stillery.jobs.config.run_file import trained_reading, trained_search, trained_task
from stillery.jobs.config.settings import (
    Asked,
    DataSettings,
    Distill,
    GenerationSettings,
    InputSettings,
    Run,
    scoring_settings,
    setting_names,
)
from stillery.progress import say
from stillery.setting import Named, make, option_name

__all__ = ["as_taught", "as_trained", "prefix_of", "reading_of"]


def as_taught(asked: Asked[Run], errors: ErrorList) -> tuple[Run, tuple[str, ...]]:
    """Return the run with lengths, prompt and prefix inherited from its model's run where none are given, and notes.

    The model is a distillation's teacher, or the one to fine-tune further; the latter gets a new task's own prefix.
    The notes report inherited settings, and given ones that differ. A model without a run file changes nothing.
    """
    run = asked.run
    notes: list[str] = []
    model = run.teacher if isinstance(run, Distill) else run.model
    found = trained_reading(model)
    if not isinstance(run, Distill) and "prefix" not in asked.given:
        found = _in_task(found, model, run.data.task, notes)
    learnt = _valid(found, model, errors)
    own = _own(run.data, run.generation)
    other = {name: value for name, value in learnt.items() if value != own[name] and name not in asked.wrong}
    taken = {name: value for name, value in other.items() if name not in asked.given}
    if taken:
        said = ", ".join(_said(name, value) for name, value in taken.items())
        notes.append(f"texts are read as {model} was trained to read them: {said}")
    differ = [
        f"{_said(name, own[name])} (not {_said(name, value).partition(' ')[2]})"
        for name, value in other.items()
        if name in asked.given
    ]
    if differ:
        notes.append(f"warning: {model} was trained to read texts in another way than {', '.join(differ)}")
    return _with(run, {name: value for name, value in learnt.items() if name not in asked.given}), tuple(notes)


def as_trained(model: str, values: Mapping[str, Any], named: Named = str) -> InputSettings:
    """Return the inputs for scoring a model, with input and search settings inherited from its run unless given."""
    given = {name: value for name, value in values.items() if value is not None}
    learnt = trained_reading(model)
    notes: list[str] = []
    if "prefix" not in given:
        learnt = _in_task(learnt, model, given.get("task"), notes)
    for note in notes:
        say(note)
    learnt |= trained_search(model)

    def spelt(name: str) -> str:
        return f"{model}/run.toml: {name}" if name in learnt and name not in given else named(name)

    return scoring_settings(learnt | given, spelt)


def reading_of(model: str, values: Mapping[str, Any], named: Named = str) -> InputSettings | None:
    """Return the inputs with the settings inherited by a teacher that is scored too; None if it has no run file."""
    return as_trained(model, values, named) if trained_reading(model) else None


def prefix_of(data: DataSettings) -> str:
    """Return the default text put before the sources of an encoder-decoder: the task's own prefix, or none."""
    return GENERATION_TASKS[data.task].prefix if data.task in GENERATION_TASKS else ""


def _in_task(learnt: dict[str, Any], model: str, task: str | None, notes: list[str]) -> dict[str, Any]:
    """Drop the inherited prefix where a task that the model was not trained on has its own; note which is used."""
    if task is None or "prefix" not in learnt:
        return learnt
    theirs, own = learnt["prefix"], prefix_of(DataSettings(task=task))
    if own == theirs:
        return learnt
    sides, new = [f"{task}, {own!r}", f"{model}, {theirs!r}"], bool(own) and trained_task(model) != task
    counts, other = sides if new else sides[::-1]
    notes.append(f"sources have the prefix of {counts}, not that of {other}; --prefix gives another")
    return {name: value for name, value in learnt.items() if not (new and name == "prefix")}


def _own(data: DataSettings, writing: GenerationSettings) -> dict[str, Any]:
    """Return the values that a run's own input settings resolve to."""
    return {
        "max_length": data.max_length,
        "max_target_length": writing.max_target_length,
        "prompt": PROMPT if writing.prompt is None else writing.prompt,
        "prefix": prefix_of(data) if writing.prefix is None else writing.prefix,
    }


def _valid(learnt: dict[str, Any], model: str, errors: ErrorList) -> dict[str, Any]:
    """Return the valid settings of a run file; invalid ones are added to the errors and left out."""
    found: dict[str, Any] = {}
    for group in (DataSettings, GenerationSettings):
        part = {name: learnt[name] for name in setting_names(group) if name in learnt}
        made, wrong = make(group, part, lambda name: f"{model}/run.toml: {name}", errors)
        found |= {name: getattr(made, name) for name in part if name not in wrong}
    return found


def _with(run: Run, values: dict[str, Any]) -> Run:
    data = {name: value for name, value in values.items() if name == "max_length"}
    writing = {name: value for name, value in values.items() if name != "max_length"}
    return dataclasses.replace(
        run, data=dataclasses.replace(run.data, **data), generation=dataclasses.replace(run.generation, **writing)
    )


def _said(name: str, value: Any) -> str:
    return f"{option_name(name)} {value!r}"
