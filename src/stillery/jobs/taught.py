"""Texts read as a teacher was trained to read them, where nothing else is asked for."""

from __future__ import annotations

import dataclasses
from typing import Any

from stillery.data.text_tokens import PROMPT
from stillery.faults import Gathered
from stillery.jobs.runfile import trained_reading
from stillery.jobs.settings import Asked, DataSettings, Distill, TextSettings, setting_names
from stillery.jobs.text_inputs import prefix_of
from stillery.setting import make, option_name

__all__ = ["as_taught"]


def as_taught(asked: Asked[Distill], faults: Gathered) -> tuple[Distill, tuple[str, ...]]:
    """The run with the lengths, prompt and prefix of the run that made its teacher, where it gives none of its own.

    And lines about what is taken over, and what is asked for and differs. A teacher that no run made changes nothing.
    """
    run, notes = asked.run, []
    learnt = _valid(trained_reading(run.teacher), run.teacher, faults)
    own = _own(run)
    other = {name: value for name, value in learnt.items() if value != own[name] and name not in asked.wrong}
    taken = {name: value for name, value in other.items() if name not in asked.given}
    if taken:
        said = ", ".join(_said(name, value) for name, value in taken.items())
        notes.append(f"texts are read as {run.teacher} was trained to read them: {said}")
    differ = [
        f"{_said(name, own[name])} (not {_said(name, value).partition(' ')[2]})"
        for name, value in other.items()
        if name in asked.given
    ]
    if differ:
        notes.append(f"warning: {run.teacher} was trained to read texts in another way than {', '.join(differ)}")
    return _with(run, {name: value for name, value in learnt.items() if name not in asked.given}), tuple(notes)


def _own(run: Distill) -> dict[str, Any]:
    """What the run comes to by itself."""
    writing = run.writing
    return {
        "max_length": run.data.max_length,
        "max_target_length": writing.max_target_length,
        "prompt": PROMPT if writing.prompt is None else writing.prompt,
        "prefix": prefix_of(run.data) if writing.prefix is None else writing.prefix,
    }


def _valid(learnt: dict[str, Any], teacher: str, faults: Gathered) -> dict[str, Any]:
    """What a run file says, as settings; what is wrong with it is noted, and left out."""
    found: dict[str, Any] = {}
    for group in (DataSettings, TextSettings):
        part = {name: learnt[name] for name in setting_names(group) if name in learnt}
        made, wrong = make(group, part, lambda name: f"{teacher}/run.toml: {name}", faults)
        found |= {name: getattr(made, name) for name in part if name not in wrong}
    return found


def _with(run: Distill, values: dict[str, Any]) -> Distill:
    data = {name: value for name, value in values.items() if name == "max_length"}
    writing = {name: value for name, value in values.items() if name != "max_length"}
    return dataclasses.replace(
        run, data=dataclasses.replace(run.data, **data), writing=dataclasses.replace(run.writing, **writing)
    )


def _said(name: str, value: Any) -> str:
    return f"{option_name(name)} {value!r}"
