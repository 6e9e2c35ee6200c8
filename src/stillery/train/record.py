"""Record what a GPU is asked to do as a CUDA graph, which it then does as often as it is replayed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

__all__ = ["Repeated", "recorded"]

T = TypeVar("T")


def recorded(work: Callable[[], T], pool: Any, device: torch.device) -> tuple[torch.cuda.CUDAGraph, T]:
    """All that `work` asks of a GPU, which is not done yet, and what it gives: tensors that each replay writes.

    Where something in it cannot be recorded that is raised, and the stream and the random generator are as before.
    """
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    # Of this thread only: another may allocate pinned memory meanwhile.
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    ended = False
    try:
        result = work()
        ended = True
        graph.capture_end()
    except BaseException:
        if not ended:
            with suppress(RuntimeError):
                graph.capture_end()
        # A recording that fails leaves the random generator waiting for its end.
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        fresh = torch.Generator(device=device)
        generator.graphsafe_set_state(fresh.graphsafe_get_state())
        raise
    return graph, result


@dataclass(frozen=True, kw_only=True, eq=False)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    reads: Mapping[str, Tensor]
    writes: Sequence[Tensor]


class Repeated:
    """Work on tensors that a GPU does often: recorded when it is given tensors of the same shapes a second time.

    What it gives is written over when it is called again. Where it cannot be recorded it goes on as it is.
    """

    def __init__(self, work: Callable[[Mapping[str, Tensor]], Sequence[Tensor]], device: torch.device) -> None:
        self.work, self.device = work, device
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
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError:
            self.refused = True
            return False
        self.graphs[kind] = _Recorded(graph=graph, reads=reads, writes=writes)
        return True
