"""Offloading of teachers whose outputs are read from the cache."""

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
from stillery.train.teacher_cache.cached_teacher import CachedTeacher

__all__ = ["idle_teachers_offloaded", "offload_to_disk", "offload_to_host"]

_ALIGNED = 64


@contextmanager
def idle_teachers_offloaded(
    teachers: Mapping[int, Teacher | None], objective: Objective, accelerator: Accelerator, folder: Path
) -> Iterator[None]:
    """Inside the block keep idle teachers off the accelerator; on a CPU their weights go to a file in `folder`."""
    present: dict[LiveTeacher, None] = {}
    running: list[LiveTeacher] = []
    for stage, teacher in teachers.items():
        if isinstance(teacher, CachedTeacher):
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
            teacher.host_weights.clear()
        elif accelerator.device.type == "cpu":
            with suppress(OSError):
                offload_to_disk(teacher.model, folder, trained)
        else:
            offload_to_host(teacher, trained)
    if idle and accelerator.device.type == "cuda":
        free_workspaces()
        # Otherwise the process keeps the buffers used to fill the cache, including pinned memory.
        free_cached()
    try:
        yield
    finally:
        for teacher in idle:
            teacher.model.to(accelerator.device)


def offload_to_host(teacher: LiveTeacher, but: Collection[int] = ()) -> None:
    """Move a teacher's weights off the accelerator; those still in host memory are not copied.

    `but` are the ids of parameters to leave, which a student may share.
    """
    model = teacher.model
    for name, weight in {**model.state_dict(keep_vars=True), **dict(model.named_buffers())}.items():
        if id(weight) not in but:
            weight.data = teacher.host_weights[name] if name in teacher.host_weights else weight.data.cpu()


def offload_to_disk(model: nn.Module, folder: Path, but: Collection[int] = ()) -> None:
    """Memory-map a model's weights from a file, so that they use memory only when it runs; `but` are ids to leave.

    The file is unnamed, so it disappears when the process ends.
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
        # Copy-on-write: changed weights change in memory only.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    for parameter, start in places:
        values = torch.frombuffer(mapped, dtype=parameter.dtype, count=parameter.numel(), offset=start)
        parameter.data = values.view(parameter.shape)
