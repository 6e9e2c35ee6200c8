"""Which of torch's fused attentions models run with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["for_any_length"]


@contextmanager
def for_any_length() -> Iterator[None]:
    """Do without cuDNN's attention: it plans anew for every batch size and length, and texts have many of those.

    On an H200 a plan takes as long as training on tens of short batches; torch's own kernels are as fast without one.
    """
    # torch below 2.5 may not have it.
    enabled = getattr(torch.backends.cuda, "cudnn_sdp_enabled", None)
    if enabled is None or not enabled():
        yield
        return
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
