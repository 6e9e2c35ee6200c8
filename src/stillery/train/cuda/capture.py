"""Capture GPU work as CUDA graphs and replay it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from stillery.progress import detail
from stillery.train.cuda.memory import free_cached
from stillery.train.cuda.stream import number_of

__all__ = ["Repeated", "first_line", "recorded"]

T = TypeVar("T")

MOST = 4
"""Maximum number of graphs that `Repeated` keeps; the oldest is dropped first."""


def recorded(work: Callable[[], T], pool: Any, device: torch.device) -> tuple[torch.cuda.CUDAGraph, T]:
    """Record `work` without running it; return the graph and the result of `work`, tensors that each replay writes.

    If recording fails, it raises and restores the stream; the random generator has to be seeded again.
    """
    graph, ended = torch.cuda.CUDAGraph(), False
    torch.cuda.synchronize()
    try:
        # Restricted to this thread: another may allocate pinned memory at the same time.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        result = work()
        ended = True
        graph.capture_end()
    except BaseException:
        if not ended:
            with suppress(RuntimeError):
                graph.capture_end()
        _end_allocating(device, pool)
        # The generator is still in its recording state; replace that.
        generator = torch.cuda.default_generators[number_of(device)]
        fresh = torch.Generator(device=device)
        generator.graphsafe_set_state(fresh.graphsafe_get_state())
        raise
    return graph, result


def _end_allocating(device: torch.device, pool: Any) -> None:
    """Stop allocating memory for a recording that failed.

    Up to torch 2.12 `capture_end` does not do that if it fails, and then no memory can be freed.
    """
    with suppress(RuntimeError, AttributeError):
        torch._C._cuda_endAllocateToPool(number_of(device), pool)
        torch._C._cuda_releasePool(number_of(device), pool)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    reads: Mapping[str, Tensor]
    writes: Sequence[Tensor]


class Repeated:
    """A function of tensors that is recorded at the second call with the same shapes, then replayed.

    Its result is overwritten by the next call. If it cannot be recorded, or the GPU lacks memory for that, this is
    reported and the function runs unrecorded.
    """

    def __init__(
        self, work: Callable[[Mapping[str, Tensor]], Sequence[Tensor]], device: torch.device, name: str
    ) -> None:
        self.work, self.device, self.name = work, device, name
        self.seen: set[Hashable] = set()
        self.graphs: dict[Hashable, _Recorded] = {}
        self.pool: Any = None
        self.refused = False

    def __call__(self, given: Mapping[str, Tensor]) -> Sequence[Tensor]:
        """Apply the function to tensors in pinned memory."""
        kind = tuple((name, tuple(tensor.shape)) for name, tensor in given.items())
        if kind not in self.graphs:
            there = {name: tensor.to(self.device, non_blocking=True) for name, tensor in given.items()}
            if kind not in self.seen or self.refused or not self._record(kind, there):
                self.seen.add(kind)
                return self.work(there)
        graph = self.graphs[kind]
        for name, tensor in given.items():
            graph.reads[name].copy_(tensor, non_blocking=True)
        graph.graph.replay()
        return graph.writes

    def _record(self, kind: Hashable, reads: Mapping[str, Tensor]) -> bool:
        self.pool = torch.cuda.graph_pool_handle() if self.pool is None else self.pool
        try:
            graph, writes = recorded(lambda: self.work(reads), self.pool, self.device)
        except Exception as error:
            detail(f"CUDA graphs: off for {self.name}, which cannot be recorded ({first_line(error)})")
            self.refused = True
        if self.refused:
            # Only after the error is released: it references memory allocated for the recording.
            self.graphs.clear()
            free_cached()
            return False
        # Safe to delete: recording has waited for all earlier replays.
        while len(self.graphs) >= MOST:
            del self.graphs[next(iter(self.graphs))]
        self.graphs[kind] = _Recorded(graph=graph, reads=reads, writes=writes)
        return True


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
