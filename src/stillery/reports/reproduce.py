"""How the numbers of a report are made again: commands to copy."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stillery.reports.source import RunFiles

__all__ = ["Command", "commands_of_runs", "commands_of_study"]

_MOST = 20


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command line, and what it makes again."""

    what: str
    line: str


def commands_of_study(folder: Path) -> list[Command]:
    """Return the command that fills the same study in another folder."""
    again = f"{folder.name}-again"
    line = shlex.join(["stillery", "study", str(folder / "plan.toml"), "--out", again])
    return [Command(what="the whole study; paths in its plan start from the folder it was written in", line=line)]


def commands_of_runs(runs: Sequence[tuple[str, RunFiles]]) -> list[Command]:
    """Return the command that repeats each run."""
    found = []
    for name, run in runs[:_MOST]:
        job = run.values.get("job")
        if job in ("distill", "finetune"):
            words = ["stillery", job, "--config", str(run.folder / "run.toml"), "--out", f"{run.folder.name}-again"]
            found.append(Command(what=name, line=shlex.join(words)))
    if len(runs) > _MOST:
        found.append(Command(what=f"the others ({len(runs) - _MOST}) likewise, each from its own run.toml", line=""))
    return found
