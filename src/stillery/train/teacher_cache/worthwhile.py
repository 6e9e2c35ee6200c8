"""Measured estimate of the time that the teacher cache saves."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator

from stillery.data.tokens.batches import in_order, padded_to
from stillery.train.step_plan import Needs
from stillery.train.teacher import LiveTeacher
from stillery.train.trainable import Trainable

__all__ = ["DiskSpeed", "Estimate", "disk_speed", "memory_bytes", "teacher_seconds"]

_TRIAL_BYTES = 1 << 24
_TRIAL_SECONDS = 1.0
# Smaller savings do not justify the disk space.
_LEAST_SECONDS = 2.0
_LEAST_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Seconds that the teacher would take in the rest of the run, and seconds for filling and reading a cache."""

    live: float
    stored: float

    @property
    def worth_it(self) -> bool:
        """True if the cache saves enough time."""
        return self.live - self.stored > max(_LEAST_SECONDS, _LEAST_SHARE * self.live)

    def __str__(self) -> str:
        times = f"the teacher takes {self.live:,.1f} s live, {self.stored:,.1f} s with the cache"
        enough = f"{_LEAST_SECONDS:g} s and a tenth of it have to be saved"
        return times if self.worth_it else f"{times}, and {enough}"


@dataclass(frozen=True, kw_only=True)
class DiskSpeed:
    """Bytes per second for writing to a folder, reading from its disk, and rereading from the system's memory."""

    write: float
    read: float
    read_again: float


def teacher_seconds(
    teacher: LiveTeacher, data: Trainable, needs: Needs, batch_size: int, accelerator: Accelerator
) -> float:
    """Measure a teacher's seconds per example, over a few batches of various lengths."""
    batches = in_order(data.lengths, batch_size)
    # Middle lengths first, the most informative ones if time runs out.
    places = np.linspace(0, len(batches) - 1, min(len(batches), 5)).astype(int)
    chosen = [batches[place] for place in sorted(places, key=lambda place: abs(place - len(batches) // 2))]

    def seconds_of(index: np.ndarray) -> float:
        batch = data.batch(index, padded_to(accelerator.device)).to(accelerator.device)
        began = time.perf_counter()
        with accelerator.autocast():
            teacher(batch.inputs, needs)
        if accelerator.device.type == "cuda":
            torch.cuda.synchronize(accelerator.device)
        return time.perf_counter() - began

    # The first call is a warm-up.
    spent, examples = seconds_of(batches[-1]), 0
    seconds = 0.0
    for index in chosen:
        took = seconds_of(index)
        seconds, examples, spent = seconds + took, examples + len(index), spent + took
        if spent > _TRIAL_SECONDS:
            break
    return seconds / examples


def disk_speed(folder: Path) -> DiskSpeed:
    """Measure the speed of writing a small temporary file and reading it back."""
    folder.mkdir(parents=True, exist_ok=True)
    content = os.urandom(_TRIAL_BYTES)
    with tempfile.TemporaryFile(dir=folder) as file:

        def write() -> None:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

        def read() -> None:
            file.seek(0)
            file.read()

        writing = _timed(write)
        with suppress(AttributeError, OSError):
            # Otherwise the file would be read from memory.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return DiskSpeed(
            write=_TRIAL_BYTES / writing, read=_TRIAL_BYTES / _timed(read), read_again=_TRIAL_BYTES / _timed(read)
        )


def memory_bytes() -> int:
    """The machine's memory in bytes, 0 if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return max(time.perf_counter() - began, 1e-6)
