"""One CUDA stream for everything a process computes while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

__all__ = ["number_of", "own_stream"]


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Compute on one fixed CUDA stream of the process, since graphs cannot be captured on the default stream.

    The teacher's forward passes have to run there too: once a process uses a second stream, the GPU takes longer
    between the kernels of a recorded step.
    """
    if device.type != "cuda":
        yield
        return
    number = number_of(device)
    stream, around = _stream_of(number), torch.cuda.current_stream(number)
    stream.wait_stream(around)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        around.wait_stream(stream)


def number_of(device: torch.device) -> int:
    """The index of a CUDA device, by default of the current one."""
    return torch.cuda.current_device() if device.index is None else device.index


@cache
def _stream_of(number: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(number)
