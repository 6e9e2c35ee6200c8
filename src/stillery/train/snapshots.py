"""Snapshots: the student's weights every few steps, kept in the run's folder for analyses of how it learns."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import save_file
from transformers import PreTrainedModel

from stillery.atomic import atomic_file
from stillery.models.full_disk import saving

__all__ = ["FOLDER", "save_snapshot", "snapshots_in"]

FOLDER = "snapshots"


def save_snapshot(folder: Path, student: PreTrainedModel, step: int) -> None:
    """Save the student's weights after this many steps."""
    place = folder / FOLDER / f"step-{step}.safetensors"
    tied: set[int] = set()
    tensors = {}
    for name, tensor in student.state_dict().items():
        if tensor.data_ptr() not in tied or not tensor.numel():
            tied.add(tensor.data_ptr())
            tensors[name] = tensor.detach().cpu().contiguous()
    with saving(place), atomic_file(place) as part:
        save_file(tensors, part)


def snapshots_in(folder: Path) -> dict[int, Path]:
    """Return the snapshots in a run's folder by step."""
    found = {}
    for path in (folder / FOLDER).glob("step-*.safetensors"):
        step = path.stem.removeprefix("step-")
        if step.isdigit():
            found[int(step)] = path
    return dict(sorted(found.items()))
