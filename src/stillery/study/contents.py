"""The address of a cell: a hash of its settings and of the content of the files that it reads."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from stillery.data.tasks.generation import GENERATION_TASKS
from stillery.data.tasks.glue import TASKS
from stillery.data.tasks.task_files import find
from stillery.errors import UserError
from stillery.jobs.config.resolved import resolved_method
from stillery.jobs.config.run_file import values_of
from stillery.jobs.config.run_paths import places
from stillery.jobs.config.settings import Distill, Finetune
from stillery.models.model_folder import model_folder

__all__ = ["address", "task_contents", "tree_contents"]

_MODEL = ("*.safetensors", "*.json", "*.txt", "*.model")


def tree_contents(path: Path) -> str:
    """A hash of a file, or of all files in a folder by their names; of a model's folder those that are the model."""
    try:
        if path.is_file():
            return _file(path, path.stat().st_size, path.stat().st_mtime_ns)
        model = (path / "config.json").is_file()
        found = [one for pattern in (_MODEL if model else ("**/*",)) for one in path.glob(pattern) if one.is_file()]
        # What a run writes beside its model says nothing about it.
        kept = sorted(one for one in found if not (model and one.name in ("metrics.json", "conditions.json")))
        names = {
            one.relative_to(path).as_posix(): _file(one, one.stat().st_size, one.stat().st_mtime_ns) for one in kept
        }
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
    return hashlib.blake2b(repr(sorted(names.items())).encode(), digest_size=16).hexdigest()


@lru_cache
def task_contents(name: str, data_dir: str | None) -> str:
    """A hash of the files of a named task."""
    found = find(TASKS.get(name) or GENERATION_TASKS[name], None if data_dir is None else Path(data_dir))
    if found.package is not None:
        return tree_contents(found.package)
    paths = sorted(
        {path for files in found.files.values() for path in (*files.paths, *([files.pairs] if files.pairs else []))}
    )
    return hashlib.blake2b(
        repr([(path.name, tree_contents(path)) for path in paths]).encode(), digest_size=16
    ).hexdigest()


@lru_cache(maxsize=4096)
def _file(path: Path, size: int, changed: int) -> str:
    """The hash of a file, worked out once while it has the same size and time."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def address(run: Finetune | Distill, teacher: str | None) -> str:
    """A hash of all settings and of what they name: the content of data and models, not where it lies."""
    if isinstance(run, Distill):
        run = replace(run, method=resolved_method(run.method))
    values = values_of(run)
    contents = {name: tree_contents(path) for name, path in places(values).items() if name not in ("teacher", "model")}
    if run.data.task is not None:
        contents["task"] = task_contents(run.data.task, run.data.data_dir)
    if isinstance(run, Finetune):
        contents["model"] = _model_contents(run.model)
    else:
        contents["teacher"] = teacher or _model_contents(run.teacher)
    kept = {name: value for name, value in values.items() if name not in contents and name != "fingerprints"}
    text = json.dumps({"settings": kept, "contents": contents}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


@lru_cache
def _model_contents(name: str) -> str:
    folder = model_folder(name)
    return tree_contents(Path(folder)) if Path(folder).is_dir() else folder
