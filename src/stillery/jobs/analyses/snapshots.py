"""Weights that a run has kept on the way: its snapshots, and the checkpoint of an unfinished run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from stillery.errors import UserError
from stillery.jobs.analyses.subjects import Subject
from stillery.models.model_folder import run_in
from stillery.train.snapshots import snapshots_in

__all__ = ["read_snapshots", "weights_at", "with_snapshots"]


def read_snapshots(run: str) -> dict[int, Path]:
    """Return the snapshots of a run by step; empty for a model without them."""
    folder = run_in(run)
    return {} if folder is None else snapshots_in(folder)


def weights_at(file: Path, like: dict[str, Tensor]) -> dict[str, Tensor]:
    """Read a snapshot's weights; raise UserError if they are not those of such a model."""
    try:
        found = load_file(file)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file}: this snapshot cannot be read ({error}); remove it") from None
    if any(name not in like or like[name].shape != tensor.shape for name, tensor in found.items()):
        raise UserError(f"{file}: this snapshot is of another model; remove it")
    return found


def with_snapshots(subject: Subject) -> Iterator[int]:
    """Load each snapshot of a run into its model in turn, yielding its step; the model is as before at the end."""
    files = read_snapshots(subject.name)
    if not files:
        return
    model = subject.model
    own = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    try:
        for step in sorted(files):
            with torch.no_grad():
                model.load_state_dict(weights_at(files[step], own), strict=False)
            yield step
    finally:
        model.load_state_dict(own)
