"""A search for a smaller student from Python: data and models in memory become files in its folder."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillery.api.given import given as taken
from stillery.atomic import atomic_file, atomic_folder
from stillery.errors import UserError
from stillery.study.shrink.request import GIVEN, Given, check_out, requested

if TYPE_CHECKING:
    from stillery.study.shrink.run import Shrunk

__all__ = ["search"]

_HERE = ("out", "tokenizer", "workers", "retry_failed")


def search(given: Mapping[str, Any], out: Path, plain: Mapping[str, Any]) -> Shrunk:
    """Run a search with the keywords of `stillery.shrink`; `plain` are the same with paths as texts."""
    names = {item.name for item in dataclasses.fields(Given)}
    workers = given.get("workers", 0)
    if type(workers) is not int or workers < 0:
        raise UserError(f"workers is {workers!r}: give a whole number from 0 on")
    with taken() as memory:
        models = {
            name: memory.model(given[name], name, given.get("tokenizer"))
            for name in ("teacher", "model")
            if given.get(name) is not None
        }
        asked = Given(**{name: value for name, value in plain.items() if name in names} | models)
        settings = {name: value for name, value in plain.items() if name not in (*names, *_HERE)}
        settings["data"] = memory.data(given.get("data"), trains=True)
        requested(asked, settings, str)
        check_out(out)
        kept: dict[str, Any] = {name: _kept(memory.folder, path, out) for name, path in models.items()}
        settings["data"] = _kept(memory.folder, settings["data"], out)
        request = requested(dataclasses.replace(asked, **kept), settings, str)
        from stillery.study.shrink.run import run_shrink

        return run_shrink(request, out, workers=workers, retry=bool(given.get("retry_failed")))


def _kept(folder: Path, path: str | None, out: Path) -> str | None:
    """What was written for something in memory, copied into the folder of the search, where its runs find it."""
    if path is None or not Path(path).is_relative_to(folder):
        return path
    place = out.absolute() / GIVEN / Path(path).name
    if Path(path).is_dir():
        with atomic_folder(place) as part:
            shutil.copytree(path, part, dirs_exist_ok=True)
    else:
        with atomic_file(place) as part:
            shutil.copyfile(path, part)
    return str(place)
