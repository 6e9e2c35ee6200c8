"""A teacher that nobody asks, because its store stands for it, is put away while the student is trained."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn

from stillery.train.cuda.memory import free_cached, free_workspaces
from stillery.train.objective import Objective
from stillery.train.teacher import LiveTeacher, Teacher
from stillery.train.teacher_cache.cached_teacher import StoredTeacher

__all__ = ["idle_teachers_away", "weights_at_home", "weights_on_disk"]

_ALIGNED = 64


@contextmanager
def idle_teachers_away(
    taught: Mapping[int, Teacher | None], objective: Objective, accelerator: Accelerator, folder: Path
) -> Iterator[None]:
    """Keep teachers that nobody asks off the accelerator; on a CPU their weights go to a file in `folder`."""
    present: dict[LiveTeacher, None] = {}
    running: list[LiveTeacher] = []
    for stage, teacher in taught.items():
        if isinstance(teacher, StoredTeacher):
            present[teacher.live] = None
        elif isinstance(teacher, LiveTeacher):
            present[teacher] = None
            running += [teacher] if objective.stages[stage].needs_teacher else []
    mixing = any(match.view == "mixed" for stage in objective.stages for match in stage.matches)
    busy = [teacher.model for teacher in running]
    idle = [] if mixing else [teacher for teacher in present if teacher.model not in busy]
    trained = {id(parameter) for parameter in objective.parameters()}
    for teacher in present:
        if teacher not in idle:
            teacher.home.clear()
        elif accelerator.device.type == "cpu":
            with suppress(OSError):
                weights_on_disk(teacher.model, folder, trained)
        else:
            weights_at_home(teacher, trained)
    if idle and accelerator.device.type == "cuda":
        free_workspaces()
        # What a store was filled through, pinned memory too, stays with the process otherwise.
        free_cached()
    try:
        yield
    finally:
        for teacher in idle:
            teacher.model.to(accelerator.device)


def weights_at_home(teacher: LiveTeacher, but: Collection[int] = ()) -> None:
    """Take a teacher's weights off the accelerator; those that never left the host's memory need not be copied.

    `but` are ids of parameters that stay: a student may share some.
    """
    model = teacher.model
    for name, weight in {**model.state_dict(keep_vars=True), **dict(model.named_buffers())}.items():
        if id(weight) not in but:
            weight.data = teacher.home[name] if name in teacher.home else weight.data.cpu()


def weights_on_disk(model: nn.Module, folder: Path, but: Collection[int] = ()) -> None:
    """Map a model's weights from a file, so that they take memory only when it runs; `but` are ids of parameters.

    The file has no name, so nothing is left of it when the process ends.
    """
    places, end = [], 0
    with tempfile.TemporaryFile(dir=folder) as file:
        for parameter in model.parameters():
            if id(parameter) in but or not parameter.numel():
                continue
            file.seek(end)
            file.write(parameter.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
            places.append((parameter, end))
            end = -(-file.tell() // _ALIGNED) * _ALIGNED
        file.flush()
        if not places:
            return
        # Whoever changes a weight changes it in memory alone.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    for parameter, start in places:
        values = torch.frombuffer(mapped, dtype=parameter.dtype, count=parameter.numel(), offset=start)
        parameter.data = values.view(parameter.shape)
