"""What the folders and files named for a report are: studies, runs, figures of analyses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from stillery.errors import ErrorList, UserError
from stillery.jobs.comparison.models import Model, read_run
from stillery.jobs.config.run_file import read_toml
from stillery.jobs.run_folder import read_metrics
from stillery.models.model_folder import run_in
from stillery.progress import say

__all__ = ["RunFiles", "Sources", "find_sources", "read_runs"]


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
        known = {name: value for name, value in (cost if isinstance(cost, dict) else {}).items() if _number(value)}
        agreement = self.metrics.get("agreement")
        return known | ({"agreement": agreement} if _number(agreement) else {})


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass
class Sources:
    """The studies, run folders and files of analyses that a report is of."""

    studies: list[Path] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    analyses: list[Path] = field(default_factory=list)


def find_sources(places: Sequence[str]) -> Sources:
    """Sort what was named; a folder of run folders stands for all of them. Raises UserError for anything else."""
    found, errors = Sources(), ErrorList()
    for place in places:
        with errors.catch():
            _sort(place, Path(place).expanduser(), found)
    errors.raise_any()
    for folder in [*found.studies, *map(Path, found.runs)]:
        found.analyses += sorted((folder / "analyses").glob("*.json"))
    found.runs, found.analyses = list(dict.fromkeys(found.runs)), list(dict.fromkeys(found.analyses))
    return found


def _sort(place: str, path: Path, found: Sources) -> None:
    try:
        if path.is_file():
            if path.suffix != ".json":
                raise UserError(f"{place} is a file: name folders of studies or runs, or the .json file of an analysis")
            found.analyses.append(path)
        elif not path.is_dir():
            raise UserError(f"{place}: no such folder")
        elif (path / "cells.json").is_file():
            found.studies.append(path)
        elif _is_run(path) or run_in(str(path.resolve())) is not None:
            found.runs.append(place)
        else:
            inside = list(_runs_in(path))
            analyses = sorted(path.glob("*.json"))
            if not inside and not analyses:
                raise UserError(f"{place}: neither a study nor a run is in this folder")
            found.runs += map(str, inside)
            found.analyses += [] if inside else analyses
    except OSError as error:
        raise UserError(f"{place}: cannot be read ({error.strerror or error})") from None


def _is_run(path: Path) -> bool:
    return (path / "metrics.json").is_file() or (path / "run.toml").is_file()


def _runs_in(path: Path) -> Iterator[Path]:
    return (one for one in sorted(path.iterdir()) if one.is_dir() and _is_run(one))


def read_runs(places: Sequence[str]) -> tuple[list[Model], list[str]]:
    """Read finished runs; those that are not finished or damaged are left out, with a warning that names them."""
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
    for line in left_out:
        say(f"warning: left out: {line}")
    return runs, left_out
