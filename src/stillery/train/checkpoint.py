"""Save and restore the training checkpoints of a run: weights, projections, optimiser, counters. No pickle.

Learning rate, order of examples, dropout and random pairings are pure functions of the step and are not saved.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stillery.atomic import atomic_file, atomic_folder, remove_leftovers
from stillery.errors import UserError
from stillery.models.full_disk import saving

__all__ = [
    "PROJECTIONS",
    "Progress",
    "discard",
    "has_checkpoint",
    "load_best",
    "read_begun",
    "read_progress",
    "restore_optimiser",
    "restore_weights",
    "save",
    "save_begun",
    "save_best",
    "save_projections",
]

_WEIGHTS, _OPTIMISER, _STATE = "weights.safetensors", "optimiser.safetensors", "state.json"
_BEGUN = "begun.json"

PROJECTIONS = "projections/projections.safetensors"
"""The trained projections in the folder of a finished run."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The state of a run that is no function of the step: counters, cache decisions and warnings."""

    step: int = 0
    seconds: float = 0.0
    best: dict[str, float] | None = None
    best_step: int | None = None
    last: dict[str, float] | None = None
    stale: int = 0
    stopped: bool = False
    stopped_by: str | None = None
    scaler: dict[str, Any] | None = None
    stored: list[int] | None = None
    store_seconds: float = 0.0
    store_choices: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)

    def after(self, **changes: Any) -> Progress:
        """Return a copy with some fields changed."""
        return replace(self, **changes)


def _places(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((folder / "checkpoints").glob("step-*"), key=lambda place: int(place.name.removeprefix("step-")))


def has_checkpoint(folder: Path) -> bool:
    """Return whether a run folder holds a checkpoint to resume from."""
    return bool(_places(folder))


def discard(folder: Path) -> None:
    """Remove all checkpoints of a finished run."""
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def _own(module: nn.Module) -> dict[str, Tensor]:
    """The module's tensors by name; a tied tensor is listed once, under its first name."""
    own = {id(tensor): name for name, tensor in reversed([*module.named_parameters(remove_duplicate=False)])}
    tied = {name for name, tensor in module.named_parameters(remove_duplicate=False) if own[id(tensor)] != name}
    return {name: tensor for name, tensor in module.state_dict().items() if name not in tied}


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in _own(module).items()}


def _optimiser_tensors(module: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return {
        f"{names[id(parameter)]}/{key}": value.detach().cpu().contiguous()
        for parameter, state in optimiser.state.items()
        for key, value in state.items()
    }


def save(folder: Path, module: nn.Module, optimiser: torch.optim.Optimizer, progress: Progress) -> None:
    """Write a checkpoint; the previous one is kept until this one is complete."""
    before, place = _places(folder), folder / "checkpoints" / f"step-{progress.step}"
    with saving(place), atomic_folder(place) as part:
        save_file(_tensors(module), part / _WEIGHTS)
        save_file(_optimiser_tensors(module, optimiser), part / _OPTIMISER)
        (part / _STATE).write_text(json.dumps(asdict(progress)), encoding="utf-8")
    for old in before:
        if old.name != place.name:
            shutil.rmtree(old)
    for old in (folder / "checkpoints").glob("best-*.safetensors"):
        if old != _best(folder, progress.best_step):
            old.unlink()


def read_progress(folder: Path) -> Progress:
    """Read the progress from the latest checkpoint."""
    remove_leftovers(folder / "checkpoints")
    path = _places(folder)[-1] / _STATE
    try:
        return Progress(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path}: this checkpoint cannot be read ({error}); start again in another --out") from None


def save_begun(folder: Path, progress: Progress) -> None:
    """Save the decisions made before the first step, so that a run resumed before its first checkpoint reuses them."""
    with atomic_file(folder / "checkpoints" / _BEGUN) as part:
        part.write_text(json.dumps(asdict(progress)), encoding="utf-8")


def read_begun(folder: Path) -> Progress:
    """Read the decisions made before the first step; empty if no run has begun here."""
    try:
        return Progress(**json.loads((folder / "checkpoints" / _BEGUN).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Progress()


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: this checkpoint is damaged ({error}); start again in another --out") from None


def restore_weights(folder: Path, module: nn.Module) -> None:
    """Load the saved weights into the module."""
    path = _places(folder)[-1] / _WEIGHTS
    saved = _read(path)
    current = _own(module)
    if saved.keys() != current.keys() or any(saved[name].shape != current[name].shape for name in saved):
        raise UserError(f"{path}: this checkpoint is of another model; start again in another --out")
    module.load_state_dict(saved, strict=False)


def restore_optimiser(folder: Path, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Load the saved optimiser state into a new optimiser of the same parameters."""
    path = _places(folder)[-1] / _OPTIMISER
    parameters = dict(module.named_parameters())
    for key, value in _read(path).items():
        name, _, field = key.rpartition("/")
        if name not in parameters:
            raise UserError(f"{path}: this checkpoint is of another model; start again in another --out")
        parameter = parameters[name]
        # A fused optimiser keeps its step counter on the parameter's device, any other on the CPU.
        optimiser.state[parameter][field] = value.to(parameter.device)


def _best(folder: Path, step: int | None) -> Path:
    return folder / "checkpoints" / f"best-{step}.safetensors"


def save_best(folder: Path, module: nn.Module, step: int) -> None:
    """Save these weights as the best so far; earlier ones are removed with the next checkpoint."""
    with saving(_best(folder, step)), atomic_file(_best(folder, step)) as part:
        save_file(_tensors(module), part)


def load_best(folder: Path, module: nn.Module, step: int) -> None:
    """Load the best weights."""
    # Further names of tied tensors are missing because they were not saved.
    module.load_state_dict(_read(_best(folder, step)), strict=False)


def save_projections(folder: Path, module: nn.Module) -> None:
    """Save the trained projections of a run, which are no part of the exported model, for later analyses.

    They have a folder of their own: some programs load every weight file beside a model's.
    """
    found = {
        name.removeprefix("projections."): tensor
        for name, tensor in _tensors(module).items()
        if name.startswith("projections.")
    }
    if found:
        with saving(folder / PROJECTIONS), atomic_file(folder / PROJECTIONS) as part:
            save_file(found, part)
