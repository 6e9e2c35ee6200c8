"""A run folder: made for one run, gone on with by the same run, never overwritten by another."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillery.atomic import atomic_file, remove_leftovers
from stillery.faults import Fault
from stillery.jobs.settings import Distill, Finetune, to_toml

__all__ = ["finished", "open_folder", "read_metrics", "write_json"]


def finished(out: Path) -> bool:
    """Whether the folder holds a run that ran to its end."""
    return (out / "metrics.json").is_file() and (out / "student" / "config.json").is_file()


def open_folder(out: Path, run: Finetune | Distill, *, resume: bool, write: bool = True) -> bool:
    """Make the folder of a run, or go on with it; return whether the run in it is finished already.

    A folder that holds another run, or anything else, is refused.
    """
    if out.exists() and not out.is_dir():
        raise Fault(f"{out} is a file: give a folder for --out")
    text = to_toml(run)
    written = out / "run.toml"
    if not written.is_file():
        if out.is_dir() and any(out.iterdir()):
            raise Fault(f"{out} is not empty and holds no run: give another --out")
        if write:
            _write_text(written, text)
        return False
    different = _differences(tomllib.loads(written.read_text(encoding="utf-8")), tomllib.loads(text))
    if different:
        raise Fault(f"{out} holds another run (it differs in {', '.join(different)}): give another --out")
    if not resume:
        state = "a finished" if finished(out) else "an unfinished"
        advice = "give another --out" if finished(out) else "go on with --resume, or give another --out"
        raise Fault(f"{out} holds {state} run of these settings: {advice}")
    if write:
        remove_leftovers(out)
    return finished(out)


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    names = sorted(ours.keys() | theirs.keys())
    return [name for name in names if ours.get(name) != theirs.get(name)]


def _write_text(path: Path, text: str) -> None:
    with atomic_file(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file, whole or not at all."""
    _write_text(path, json.dumps(value, indent=2) + "\n")


def read_metrics(out: Path) -> dict[str, Any]:
    """The metrics of a finished run."""
    metrics: dict[str, Any] = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    return metrics
