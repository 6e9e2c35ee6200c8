"""Save and restore the training checkpoints of a run: weights, projections, optimiser, counters. No pickle.

Learning rate, order of examples, dropout and random pairings are pure functions of the step and are not saved. The last
two checkpoints are kept, with checksums: a run whose last one was damaged continues from the one before.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stillery.atomic import atomic_file, atomic_folder, remove_leftovers, remove_whole
from stillery.errors import UserError
from stillery.models.full_disk import saving
from stillery.progress import say
from stillery.train.checksums import CHECKSUMS, damage_in, write_checksums

__all__ = [
    "PROJECTIONS",
    "Progress",
    "discard",
    "drop_damaged",
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
# In state.json: says that the checkpoint has checksums, which earlier versions did not write.
_CHECKED = "checksums"
_OTHERWISE = "start again with --overwrite, or in another --out"
_TYPES: dict[str, tuple[type, ...]] = {
    "step": (int,), "seconds": (int, float), "best": (dict, NoneType), "best_step": (int, NoneType),
    "last": (dict, NoneType), "stale": (int,), "stopped": (bool,), "stopped_by": (str, NoneType),
    "scaler": (dict, NoneType), "stored": (list, NoneType), "store_seconds": (int, float), "store_choices": (list,),
    "warnings": (list,),
}  # fmt: skip

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
    named = [(place, place.name.removeprefix("step-")) for place in (folder / "checkpoints").glob("step-*")]
    return [place for place, step in sorted(named, key=lambda one: int(one[1]) if one[1].isdigit() else -1)
            if step.isdigit()]  # fmt: skip


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
    """Write a checkpoint; the previous one is kept beside it."""
    place = folder / "checkpoints" / f"step-{progress.step}"
    # Removed first: so no more than two are on disk at any time.
    for old in _places(folder)[:-1]:
        remove_whole(old)
    with saving(place), atomic_folder(place) as part:
        save_file(_tensors(module), part / _WEIGHTS)
        save_file(_optimiser_tensors(module, optimiser), part / _OPTIMISER)
        (part / _STATE).write_text(json.dumps(asdict(progress) | {_CHECKED: CHECKSUMS}), encoding="utf-8")
        write_checksums(part)
    _remove_unkept(folder)


def _remove_unkept(folder: Path) -> None:
    """Remove the best weights that no checkpoint continues from."""
    kept = set()
    for place in _places(folder):
        # Weights for a checkpoint that cannot be read are of no use.
        with suppress(UserError):
            kept.add(_best(folder, _progress(place).best_step))
    for old in (folder / "checkpoints").glob("best-*"):
        if old in kept:
            continue
        if old.is_dir():
            remove_whole(old)
        else:
            old.unlink()


def drop_damaged(folder: Path, *, keep_best: bool) -> None:
    """Remove damaged checkpoints from the end, and say so; raise UserError if none is left.

    Every file is read once and compared with its checksum. With `keep_best` the best weights so far are needed too.
    """
    remove_leftovers(folder / "checkpoints")
    damaged: list[tuple[Path, str]] = []
    for place in reversed(_places(folder)):
        wrong = _damage(folder, place, keep_best)
        if wrong is None:
            for each, what in damaged:
                say(f"{each}: damaged ({what}); the run continues from step {_step_of(place)}")
                remove_whole(each)
            return
        damaged.append((place, wrong))
    if damaged:
        place, wrong = damaged[0]
        raise UserError(f"{place}: damaged ({wrong}), and there is no earlier checkpoint: {_OTHERWISE}")


def _damage(folder: Path, place: Path, keep_best: bool) -> str | None:
    """Return what is wrong with a checkpoint, or with the best weights that it needs; None if nothing is."""
    if (place / CHECKSUMS).exists() and (wrong := damage_in(place)) is not None:
        return wrong
    try:
        progress = _progress(place)
        # Checkpoints of earlier versions have no checksums.
        if _CHECKED in json.loads((place / _STATE).read_text(encoding="utf-8")) and not (place / CHECKSUMS).exists():
            return f"{CHECKSUMS} is missing"
        for name in (_WEIGHTS, _OPTIMISER):
            with safe_open(place / name, framework="pt"):
                pass
    except UserError as error:
        return str(error).removeprefix(f"{place / _STATE}: ")
    except (OSError, SafetensorError) as error:
        return f"{name} cannot be read ({error})"
    best = _best(folder, progress.best_step)
    if not keep_best or progress.best_step is None or best.suffix:
        return None
    wrong = damage_in(best)
    return None if wrong is None else f"the best weights, {best.name}: {wrong}"


def _step_of(place: Path) -> int:
    return int(place.name.removeprefix("step-"))


def _progress(place: Path) -> Progress:
    """Read the progress from a checkpoint."""
    path = place / _STATE
    try:
        progress = _parsed(path)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path}: state.json cannot be read ({error})") from None
    if progress.step != _step_of(place):
        raise UserError(f"{path}: state.json is of step {progress.step}")
    return progress


def _parsed(path: Path) -> Progress:
    values = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise TypeError("not a table")
    values.pop(_CHECKED, None)
    for name in (one.name for one in fields(Progress)):
        if name in values and type(values[name]) not in _TYPES[name]:
            raise TypeError(f"{name} is {str(values[name])[:40]!r}")
    return Progress(**values)


def read_progress(folder: Path) -> Progress:
    """Read the progress from the latest checkpoint."""
    return _progress(_places(folder)[-1])


def save_begun(folder: Path, progress: Progress) -> None:
    """Save the decisions made before the first step, so that a run resumed before its first checkpoint reuses them."""
    with atomic_file(folder / "checkpoints" / _BEGUN) as part:
        part.write_text(json.dumps(asdict(progress)), encoding="utf-8")


def read_begun(folder: Path) -> Progress:
    """Read the decisions made before the first step; empty if no run has begun here."""
    try:
        return _parsed(folder / "checkpoints" / _BEGUN)
    except (OSError, ValueError, TypeError):
        return Progress()


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: this checkpoint is damaged ({error}): {_OTHERWISE}") from None


def restore_weights(folder: Path, module: nn.Module) -> None:
    """Load the saved weights into the module."""
    path = _places(folder)[-1] / _WEIGHTS
    saved = _read(path)
    current = _own(module)
    if saved.keys() != current.keys() or any(saved[name].shape != current[name].shape for name in saved):
        raise UserError(f"{path}: this checkpoint is of another model: {_OTHERWISE}")
    module.load_state_dict(saved, strict=False)


def restore_optimiser(folder: Path, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Load the saved optimiser state into a new optimiser of the same parameters."""
    path = _places(folder)[-1] / _OPTIMISER
    parameters = dict(module.named_parameters())
    for key, value in _read(path).items():
        name, _, field = key.rpartition("/")
        if name not in parameters or not _fits(field, value, parameters[name]):
            raise UserError(f"{path}: this checkpoint is of another model: {_OTHERWISE}")
        parameter = parameters[name]
        # A fused optimiser keeps its step counter on the parameter's device, any other on the CPU.
        optimiser.state[parameter][field] = value.to(parameter.device)


def _fits(field: str, value: Tensor, parameter: Tensor) -> bool:
    """Return whether a tensor of the optimiser's state belongs to this parameter; a wrong one ends in a crash."""
    if field == "step":
        return value.numel() == 1
    return field in ("exp_avg", "exp_avg_sq") and value.shape == parameter.shape and value.is_floating_point()


def _best(folder: Path, step: int | None) -> Path:
    """The folder of the best weights so far; earlier versions wrote a file."""
    before = folder / "checkpoints" / f"best-{step}.safetensors"
    return before if before.is_file() else before.with_suffix("")


def save_best(folder: Path, module: nn.Module, step: int) -> None:
    """Save these weights as the best so far; earlier ones are removed with the checkpoints that need them."""
    place = folder / "checkpoints" / f"best-{step}"
    with saving(place), atomic_folder(place) as part:
        save_file(_tensors(module), part / _WEIGHTS)
        write_checksums(part)


def load_best(folder: Path, module: nn.Module, step: int) -> None:
    """Load the best weights."""
    place = _best(folder, step)
    wrong = None if place.suffix else damage_in(place)
    if wrong is not None:
        raise UserError(f"{place}: damaged ({wrong}); continue from an earlier checkpoint with --resume")
    # Further names of tied tensors are missing because they were not saved.
    module.load_state_dict(_read(place if place.suffix else place / _WEIGHTS), strict=False)


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
