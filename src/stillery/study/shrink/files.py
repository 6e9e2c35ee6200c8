"""The files of a search beside its run folders: what was measured, and the recommended student."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w

from stillery.atomic import atomic_file, atomic_folder
from stillery.errors import UserError
from stillery.jobs.config.run_file import read_toml
from stillery.jobs.config.run_paths import MACHINE, machine_paths, written_paths
from stillery.study.shrink.request import FILE

__all__ = ["copy_run", "read_search", "write_search"]


def copy_run(run: Path, place: Path) -> None:
    """Copy a run folder; weights are linked, as nothing changes them. Its run file names paths from its new place."""
    with atomic_folder(place) as part:
        shutil.copytree(run, part, copy_function=_link, dirs_exist_ok=True)
        values = read_toml(run / "run.toml")
        for name in ("run.toml", MACHINE):
            (part / name).unlink(missing_ok=True)
        (part / "run.toml").write_text(tomli_w.dumps(written_paths(values, place)), encoding="utf-8")
        far = machine_paths(values, place)
        if far:
            (part / MACHINE).write_text(tomli_w.dumps(far), encoding="utf-8")


def _link(source: str, target: str) -> None:
    if source.endswith(".safetensors"):
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copy2(source, target)


def read_search(out: Path) -> dict[str, Any] | None:
    """What was measured for the search in a folder; None where there is no search."""
    try:
        found = json.loads((out / FILE).read_text(encoding="utf-8"))
        return {"terms": str(found["terms"]), **found}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{out / FILE}: cannot be read ({error}); give another --out") from None


def write_search(out: Path, record: Mapping[str, Any]) -> None:
    """Write what was measured, so that the same command continues with the same numbers."""
    with atomic_file(out / FILE) as part:
        part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
