"""Record what a GPU is asked to do as a CUDA graph, which it then does as often as it is replayed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from stillery.progress import say
from stillery.train.cuda.memory import free_cached
from stillery.train.cuda.stream import number_of

__all__ = ["Repeated", "first_line", "recorded"]

T = TypeVar("T")

MOST = 4
"""Graphs that `Repeated` keeps; beyond them the one recorded first is forgotten."""


def recorded(work: Callable[[], T], pool: Any, device: torch.device) -> tuple[torch.cuda.CUDAGraph, T]:
    """All that `work` asks of a GPU, which is not done yet, and what it gives: tensors that each replay writes.

    Where something in it cannot be recorded that is raised; then the stream is as before, and the random generator has
    to be seeded.
    """
    graph, ended = torch.cuda.CUDAGraph(), False
    torch.cuda.synchronize()
    try:
        # Of this thread only: another may allocate pinned memory meanwhile.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        result = work()
        ended = True
        graph.capture_end()
    except BaseException:
        if not ended:
            with suppress(RuntimeError):
                graph.capture_end()
        _end_allocating(device, pool)
        # It waits for the recording's end.
        generator = torch.cuda.default_generators[number_of(device)]
        fresh = torch.Generator(device=device)
        generator.graphsafe_set_state(fresh.graphsafe_get_state())
        raise
    return graph, result


def _end_allocating(device: torch.device, pool: Any) -> None:
    """End that memory is allocated for a recording that failed, where ending it has not.

    Up to torch 2.12 it does not where the GPU refuses it, and no memory can be given back to the GPU after that.
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
    """Work on tensors that a GPU does often: recorded when it is given tensors of the same shapes a second time.

    What it gives is written over when it is called again. Where it cannot be recorded, or the GPU has no memory for
    that, this is said and it goes on as it is.
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
        """The work on tensors that are in pinned memory."""
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
            say(f"CUDA graphs: off for {self.name}, which cannot be recorded ({first_line(error)})")
            self.refused = True
        if self.refused:
            # Not while the error is there: it holds what was allocated for the recording.
            self.graphs.clear()
            free_cached()
            return False
        # Recording has waited for all replays before.
        while len(self.graphs) >= MOST:
            del self.graphs[next(iter(self.graphs))]
        self.graphs[kind] = _Recorded(graph=graph, reads=reads, writes=writes)
        return True


def first_line(error: Exception) -> str:
    """What an error says first."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
