"""Asynchronous copies of tensors from a GPU to the host."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Fetched"]


class Fetched:
    """Tensors of one device being copied to the host; only copies from a CUDA device are asynchronous."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._arrive: torch.cuda.Event | None = None
        if not any(tensor.is_cuda for tensor in tensors):
            self._tensors = [tensor.cpu() for tensor in tensors]
            return
        self._tensors = [_sent(tensor) for tensor in tensors]
        self._arrive = torch.cuda.Event()
        self._arrive.record()

    @property
    def arrived(self) -> bool:
        """True if `read` returns without waiting."""
        return self._arrive is None or self._arrive.query()

    def read(self) -> list[Tensor]:
        """Return the tensors on the host; wait for the copies, but not for later work of the GPU."""
        if self._arrive is not None:
            self._arrive.synchronize()
        return self._tensors


def _sent(tensor: Tensor) -> Tensor:
    there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return there.copy_(tensor, non_blocking=True)
