"""What the folders and files named for a report are: studies, runs, figures of analyses. Loads no model library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stillery.errors import ErrorList, UserError
from stillery.models.model_folder import run_in

__all__ = ["Sources", "find_sources"]


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
