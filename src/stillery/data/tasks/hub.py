"""Data sets of the Hugging Face hub: lookup in the local cache, and download."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stillery.data.tasks.layouts import Files, hub_splits
from stillery.data.tasks.specification import Hub
from stillery.errors import UserError
from stillery.hub import NoAnswer, ask
from stillery.progress import track

__all__ = ["Cached", "NotFetched", "cached", "fetch"]

_PATIENCE = 30.0
"""Seconds without received data after which a download is aborted."""


class NotFetched(Exception):
    """The short reason why a download from the hub failed."""


@dataclass(frozen=True, kw_only=True)
class Cached:
    """A data set in the local cache: its repository, its revision, and the files of each split."""

    repo: str
    revision: str
    files: dict[str, Files]


def cached(hub: Hub) -> Cached | None:
    """Find the data set in the local cache; None unless every split is there."""
    for repo in (hub.repo, *hub.also):
        for snapshot in _snapshots(repo, hub.revision):
            names = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.parquet") if path.is_file()]
            try:
                splits = hub_splits(names, hub.folder, hub.splits, str(snapshot))
            except UserError:
                # An interrupted download, which is resumed instead of read.
                continue
            if splits.keys() == hub.splits.keys():
                files = {split: Files(paths=tuple(snapshot / name for name in some)) for split, some in splits.items()}
                return Cached(repo=repo, revision=snapshot.name, files=files)
    return None


def fetch(hub: Hub, name: str) -> Cached:
    """Download every split that is not in the local cache yet."""
    # The exceptions of the hub's client depend on its version and on its HTTP library.
    try:
        ask(partial(_download, hub, name), growing=_cache_of(hub.repo), patience=_PATIENCE)
    except NoAnswer as error:
        raise NotFetched(str(error)) from None
    except (NotFetched, UserError):
        raise
    except Exception as error:
        raise NotFetched(f"the hub: {' '.join(str(error).split())[:150]}") from None
    found = cached(hub)
    if found is None:
        raise NotFetched("the download is not in the local cache; is HF_HOME on a full disk?")
    return found


def _download(hub: Hub, name: str) -> None:
    from huggingface_hub import HfApi, constants

    api = HfApi(endpoint=constants.ENDPOINT)
    names = api.list_repo_files(hub.repo, repo_type="dataset", revision=hub.revision)
    splits = hub_splits(names, hub.folder, hub.splits, hub.repo)
    if splits.keys() != hub.splits.keys():
        raise NotFetched(f"{hub.repo} has no {', '.join(sorted(hub.splits.keys() - splits.keys()))} split on the hub")
    for file in track([file for some in splits.values() for file in some], f"download {name}"):
        api.hf_hub_download(hub.repo, file, repo_type="dataset", revision=hub.revision)


def _cache_of(repo: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"datasets--{repo.replace('/', '--')}"


def _snapshots(repo: str, revision: str) -> Iterator[Path]:
    """The cached snapshots of a repository: the one the revision points to, then the newest first."""
    folder = _cache_of(repo)
    try:
        pointer = folder / "refs" / revision
        named = pointer.read_text(encoding="utf-8").strip() if pointer.is_file() else None
        there = sorted((folder / "snapshots").iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return
    yield from sorted(there, key=lambda path: path.name != named)
