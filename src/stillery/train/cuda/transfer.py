"""Copies of tensors from a GPU to the host that the host does not wait for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Fetched"]


class Fetched:
    """Tensors that are copied to the host, all of one device; from any but a CUDA device they are there at once."""

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
        """Whether reading them would not wait."""
        return self._arrive is None or self._arrive.query()

    def read(self) -> list[Tensor]:
        """The tensors on the host; waits for them, and for no later work of the GPU."""
        if self._arrive is not None:
            self._arrive.synchronize()
        return self._tensors


def _sent(tensor: Tensor) -> Tensor:
    there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return there.copy_(tensor, non_blocking=True)
