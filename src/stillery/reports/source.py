"""The files of runs that a report is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.jobs.comparison.models import Model, read_run
from stillery.jobs.config.run_file import read_toml
from stillery.jobs.run_folder import read_metrics
from stillery.reports.content import costs_of

__all__ = ["RunFiles", "read_runs"]


@dataclass(frozen=True)
class RunFiles:
    """The files of a finished run."""

    folder: Path

    @cached_property
    def values(self) -> dict[str, Any]:
        """Its settings; empty where its run file cannot be read."""
        try:
            return read_toml(self.folder / "run.toml")
        except UserError:
            return {}

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Its scores and costs; empty where they cannot be read."""
        try:
            return read_metrics(self.folder)
        except (UserError, OSError):
            return {}

    @property
    def split(self) -> str | None:
        """The split that it was scored on."""
        found = self.metrics.get("split", self.metrics.get("part"))
        return found if isinstance(found, str) else None

    @property
    def costs(self) -> dict[str, float | None]:
        """What it costs, and how often it agrees with its teacher."""
        cost = self.metrics.get("cost")
        named = {name: self.metrics.get(name) for name in ("agreement", "texts_per_second")}
        known = {**named, **(cost if isinstance(cost, dict) else {})}
        return costs_of({name: value for name, value in known.items() if _number(value)})


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def read_runs(places: Sequence[str]) -> tuple[list[Model], list[str]]:
    """Read finished runs; returns also why others, which are not finished or damaged, are left out."""
    runs: list[Model] = []
    left_out: list[str] = []
    for place in places:
        try:
            run = read_run(place)
        except UserError as error:
            left_out += error.lines
            continue
        if run.folder not in [one.folder for one in runs]:
            runs.append(run)
    return runs, left_out
