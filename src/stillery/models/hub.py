"""Download of models from the Hugging Face hub into its local cache, with one request per model and process."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from stillery.errors import UserError
from stillery.hub import NoAnswer, ask, offline, silent
from stillery.progress import say, track
from stillery.small_files import read_json

__all__ = ["fetch_weights", "hub_folder", "is_cached", "is_hub_name"]

_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
_LONGEST = 96
_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".json", ".toml", ".csv", ".git", "-", ".")
_PATH_WORDS = re.compile(
    r"(?:runs?|outs?|outputs?|models?|checkpoints?|teachers?|students?|results?|experiments?|exps?|tmp|temp|data|demo"
    r"|saved[-_]models?|artifacts?|home|work|workspace|mnt|content)(?:[-_.]?\d+)?",
    re.IGNORECASE,
)
"""Common names of folders that are no hub accounts."""

_SMALL = ("*.json", "*.txt", "*.model", "*.jinja", "*.bpe", "*.vocab")
"""Files beside the weights: configurations, tokenizers, templates."""

_WEIGHTS = (
    re.compile(r"(?:model(?:-\d+-of-\d+)?|student)\.safetensors"),
    re.compile(r"pytorch_model(?:-\d+-of-\d+)?\.bin"),
)
"""Patterns of weight files; the second is used only if no file matches the first."""
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SINGLE = ("model.safetensors", "student.safetensors", "pytorch_model.bin")
_WEIGHTS_PATIENCE = 30.0

_folders: dict[str, Path] = {}


def is_hub_name(name: str) -> bool:
    """Return whether this can be the name of a hub model (`ORG/NAME` or `NAME`) and is no common folder name.

    >>> [is_hub_name(name) for name in ("google-bert/bert-base-uncased", "gpt2", "runs/teacher", "teacher", "a/b/c")]
    [True, True, False, False, False]
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST or "--" in name or ".." in name:
        return False
    first = name.partition("/")[0]
    return not name.lower().endswith(_SUFFIXES) and not _PATH_WORDS.fullmatch(first)


def hub_folder(name: str) -> str:
    """Return the folder with a hub model's configuration and tokenizer, from the hub or else from its local cache.

    A process sends one request per model to the hub.
    """
    if name not in _folders:
        _folders[name] = _asked(name)
    return str(_folders[name])


def _asked(name: str) -> Path:
    cached = _in_cache(name)
    if variable := offline():
        if cached is None:
            raise UserError(
                f"{name}: no such folder, and no model of that name in the local cache; {variable} is set, so the hub "
                "is not asked: give a folder, or unset it"
            )
        return cached
    if silent() is None:
        say(f"asking the hub for {name}")
    try:
        return ask(partial(_small_files, name), growing=_cache_of(name))
    except NoAnswer as error:
        if cached is not None:
            say(f"{name}: {error}; taken from the local cache")
            return cached
        raise UserError(
            f"{name}: no such folder, and no model of that name in the local cache; {error}: give a folder, or connect "
            "and try again"
        ) from None
    except Exception as error:
        raise _refused(name, error) from None


def _small_files(name: str) -> Path:
    """Download a model's files other than weights, if they are not cached."""
    from huggingface_hub import HfApi, hf_hub_download

    # Without a revision, the cache records the newest one, for later use offline.
    folder = Path(hf_hub_download(name, "config.json")).parent
    revision = folder.name
    for file in HfApi().list_repo_files(name, revision=revision):
        if "/" not in file and any(fnmatch(file, pattern) for pattern in _SMALL):
            hf_hub_download(name, file, revision=revision)
    return folder


def fetch_weights(name: str) -> None:
    """Download the weights of a hub model if they are not cached; do nothing for any other model."""
    folder = _folders.get(name)
    if folder is None or _has_weights(folder):
        return
    try:
        ask(partial(_weights, name, folder), growing=_cache_of(name), patience=_WEIGHTS_PATIENCE)
    except NoAnswer as error:
        raise UserError(f"{name}: its weights are not in the local cache, and {error}: connect and try again") from None
    except UserError:
        raise
    except Exception as error:
        raise _refused(name, error) from None


def _has_weights(folder: Path) -> bool:
    """Return whether all weight files, which may be sharded, are present."""
    for name in _INDEXES:
        if (folder / name).is_file():
            try:
                index = read_json(folder / name)
                return all((folder / file).is_file() for file in set(index["weight_map"].values()))
            except (OSError, ValueError, KeyError, AttributeError):
                break
    return any((folder / file).is_file() for file in _SINGLE)


def _weights(name: str, folder: Path) -> None:
    from huggingface_hub import HfApi, hf_hub_download

    there = HfApi().list_repo_files(name, revision=folder.name)
    files = next((found for kind in _WEIGHTS if (found := [file for file in there if kind.fullmatch(file)])), [])
    if not files:
        raise UserError(f"{name}: this model has neither model.safetensors nor pytorch_model.bin on the hub")
    for file in track(files, f"download {name}"):
        hf_hub_download(name, file, revision=folder.name)


def is_cached(name: str) -> bool:
    """Return whether the hub's local cache has this model."""
    return _in_cache(name) is not None


def _in_cache(name: str) -> Path | None:
    """Return the cached folder of a model with a configuration; None without one."""
    if not _cache_of(name).is_dir():
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "config.json")
    return Path(found).parent if isinstance(found, str) else None


def _cache_of(name: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"


def _refused(name: str, error: Exception) -> UserError:
    """Return a UserError that explains the hub's refusal of a model."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in kinds:
        return UserError(
            f"{name}: the hub gives this model to those who accepted its terms: do so, then `hf auth login`"
        )
    if "RepositoryNotFoundError" in kinds:
        return UserError(
            f"{name}: no such folder, and no model of that name on the hub: check the name (of a private model: "
            "`hf auth login`)"
        )
    if "EntryNotFoundError" in kinds:
        return UserError(f"{name}: this model of the hub has no config.json, so it cannot be read")
    return UserError(f"{name}: the hub: {' '.join(str(error).split())[:150]}")
