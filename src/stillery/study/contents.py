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
from stillery.models.option_words import STARTS
from stillery.study.at_hand import model_is_here, task_is_here

__all__ = ["absent", "address", "task_contents", "tree_contents"]

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


def absent(run: Finetune | Distill) -> tuple[str, ...]:
    """What of the data and models of a run can be had neither on this machine nor from the hub, in words.

    A task's own file has to be there; that of the hidden-state stage's texts may be made later.
    """
    models: list[str | None] = (
        [run.model] if isinstance(run, Finetune) else [run.student.init_from, run.method.ild_teacher]
    )
    if isinstance(run, Distill) and run.student.init not in STARTS:
        models.append(run.student.init)
    tasks = [run.data.task] + ([run.method.ild_task] if isinstance(run, Distill) else [])
    lacking = [f"model {name}" for name in models if name is not None and not model_is_here(name)]
    lacking += [f"data of {name}" for name in tasks if name is not None and not task_is_here(name, run.data.data_dir)]
    texts = run.method.ild_data if isinstance(run, Distill) else None
    return (*lacking, *([f"file {texts}"] if texts is not None and not Path(texts).exists() else []))


def address(run: Finetune | Distill, teacher: str | None, *, whole: bool = True) -> str:
    """A hash of all settings and of what they name: the content of data and models, not where it lies.

    Without `whole` it is of the settings alone, for a cell whose data or models are not at hand.
    """
    if isinstance(run, Distill):
        run = replace(run, method=resolved_method(run.method))
    if not whole:
        return hashlib.blake2b(repr((run, teacher)).encode(), digest_size=5).hexdigest()
    values = values_of(run)
    contents = {name: tree_contents(path) for name, path in places(values).items() if name not in ("teacher", "model")}
    if run.data.task is not None:
        contents["task"] = task_contents(run.data.task, run.data.data_dir)
    if isinstance(run, Distill) and run.method.ild_task is not None:
        contents["ild_task"] = task_contents(run.method.ild_task, run.data.data_dir)
    if isinstance(run, Finetune):
        contents["model"] = _model_contents(run.model)
    else:
        contents["teacher"] = teacher or _model_contents(run.teacher)
    no_matter = {*contents, "fingerprints", "checkpoint_seconds"}
    kept = {name: value for name, value in values.items() if name not in no_matter}
    text = json.dumps({"settings": kept, "contents": contents}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


@lru_cache
def _model_contents(name: str) -> str:
    folder = model_folder(name)
    return tree_contents(Path(folder)) if Path(folder).is_dir() else folder
