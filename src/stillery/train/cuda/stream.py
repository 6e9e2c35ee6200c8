"""One CUDA stream for everything a process computes while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

__all__ = ["number_of", "own_stream"]


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Compute on the process's own CUDA stream, always the same: on the default stream nothing can be recorded.

    The teacher's forward passes belong there too: once a process computes on a second stream, a GPU takes longer from
    each kernel of a recorded step to the next.
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
    """The number of a CUDA device, that of the current one where it has none."""
    return torch.cuda.current_device() if device.index is None else device.index


@cache
def _stream_of(number: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(number)
