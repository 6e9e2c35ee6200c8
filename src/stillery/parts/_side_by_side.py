"""Independent computations, at the same time where that is possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["side_by_side"]

_STREAMS: dict[int, list[torch.cuda.Stream]] = {}
_IN_USE = [0]


@contextmanager
def _borrowed(device: int, count: int) -> Iterator[list[torch.cuda.Stream]]:
    """Streams that no computation around this one is on."""
    streams, first = _STREAMS.setdefault(device, []), _IN_USE[0]
    while len(streams) < first + count:
        streams.append(torch.cuda.Stream(device))
    _IN_USE[0] += count
    try:
        yield streams[first : first + count]
    finally:
        _IN_USE[0] -= count


def side_by_side(tasks: Sequence[Callable[[], Tensor]], using: Callable[[], Iterable[Tensor]]) -> list[Tensor]:
    """What the tasks give, in order; `using` names the tensors they share.

    While a CUDA graph is recorded, each task but the last is on a stream of its own: a replay then runs their small
    kernels at once, backward included, where one after another they would leave the device idle. The last one, where
    matrix products are if there are any, stays: those keep memory for every stream that they were ever on.
    """
    if len(tasks) < 2 or not torch.cuda.is_available() or not torch.cuda.is_current_stream_capturing():
        return [task() for task in tasks]
    main, shared, found = torch.cuda.current_stream(), list(using()), []
    with _borrowed(main.device_index, len(tasks) - 1) as streams:
        for task, stream in zip(tasks, streams, strict=False):
            stream.wait_stream(main)
            # Their memory must not be used again before this stream is through with them, in backward too.
            for tensor in shared:
                tensor.record_stream(stream)
            with torch.cuda.stream(stream):
                found.append(task())
        found.append(tasks[-1]())
        for stream in streams:
            main.wait_stream(stream)
    return found
