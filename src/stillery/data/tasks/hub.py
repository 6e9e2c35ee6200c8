"""Data sets of the Hugging Face hub: what of them is in the local cache, and how the rest is downloaded."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stillery.data.tasks.layouts import Files, hub_splits
from stillery.data.tasks.specification import Hub
from stillery.errors import UserError
from stillery.progress import track

__all__ = ["Cached", "NotFetched", "cached", "fetch"]

PATIENCE = 5
"""Seconds to wait for the hub's first answer."""


class NotFetched(Exception):
    """Why nothing could be had from the hub, in a few words."""


@dataclass(frozen=True, kw_only=True)
class Cached:
    """A data set in the local cache: its repository, its revision, and the files of each split."""

    repo: str
    revision: str
    files: dict[str, Files]


def cached(hub: Hub) -> Cached | None:
    """The data set as the local cache has it; None unless every split is there."""
    for repo in (hub.repo, *hub.also):
        for snapshot in _snapshots(repo, hub.revision):
            names = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.parquet") if path.is_file()]
            try:
                splits = hub_splits(names, hub.folder, hub.splits, str(snapshot))
            except UserError:
                # A download that was broken off; it is gone on with, not read.
                continue
            if splits.keys() == hub.splits.keys():
                files = {split: Files(paths=tuple(snapshot / name for name in some)) for split, some in splits.items()}
                return Cached(repo=repo, revision=snapshot.name, files=files)
    return None


def fetch(hub: Hub, name: str) -> Cached:
    """Download every split that is not in the local cache yet."""
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        raise NotFetched("HF_HUB_OFFLINE is set")
    _answers(constants.ENDPOINT)
    # What the hub's client raises depends on its version and on that of its transport.
    try:
        api = HfApi(endpoint=constants.ENDPOINT)
        names = api.list_repo_files(hub.repo, repo_type="dataset", revision=hub.revision)
        splits = hub_splits(names, hub.folder, hub.splits, hub.repo)
        if splits.keys() != hub.splits.keys():
            raise NotFetched(
                f"{hub.repo} has no {', '.join(sorted(hub.splits.keys() - splits.keys()))} split on the hub"
            )
        for file in track([file for some in splits.values() for file in some], f"download {name}"):
            api.hf_hub_download(hub.repo, file, repo_type="dataset", revision=hub.revision)
    except (NotFetched, UserError):
        raise
    except Exception as error:
        raise NotFetched(f"the hub: {' '.join(str(error).split())[:150]}") from None
    found = cached(hub)
    if found is None:
        raise NotFetched("the download is not in the local cache; is HF_HOME on a full disk?")
    return found


def _answers(endpoint: str) -> None:
    """Ask the hub once before its client does, which asks six times with pauses before it gives up."""
    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=PATIENCE):
            return
    except urllib.error.HTTPError:
        return
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        # The client may know certificates that Python does not.
        if not isinstance(reason, ssl.SSLError):
            raise NotFetched("the hub cannot be reached") from None


def _snapshots(repo: str, revision: str) -> Iterator[Path]:
    """The folders that the cache has of a repository: the one its revision points at, then the newest first."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"datasets--{repo.replace('/', '--')}"
    try:
        pointer = folder / "refs" / revision
        named = pointer.read_text(encoding="utf-8").strip() if pointer.is_file() else None
        there = sorted((folder / "snapshots").iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return
    yield from sorted(there, key=lambda path: path.name != named)
