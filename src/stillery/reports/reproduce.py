"""How the numbers of a report are made again: plans, commands, and the versions it was written with."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from stillery.reports.source import RunFiles

__all__ = ["Command", "commands_of_runs", "commands_of_study", "versions"]

_PACKAGES = ("stillery", "torch", "transformers", "numpy", "scipy", "pyarrow")
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
    """Return for each run the command that repeats it, and for all of them the one that compares them."""
    found = []
    for name, run in runs[:_MOST]:
        job = run.values.get("job")
        if job in ("distill", "finetune"):
            words = ["stillery", job, "--config", str(run.folder / "run.toml"), "--out", f"{run.folder.name}-again"]
            found.append(Command(what=name, line=shlex.join(words)))
    return found


def versions() -> dict[str, str]:
    """Return the versions of what this report was written with, which may differ from those of the runs."""
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
