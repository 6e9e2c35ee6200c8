"""Which of torch's fused attentions models run with, and that nobody waits for a GPU to choose one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

__all__ = ["for_any_length", "unread_masks"]


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


@contextmanager
def unread_masks(device: str = "cuda") -> Iterator[None]:
    """Have models make attention's mask without looking whether it is needed, where masks are on such a device.

    transformers leaves a mask out where no position is padding. To know that, the host waits until a GPU has come to
    that point, in every step; and a step that is recorded as a CUDA graph, where nobody can look, would differ.
    """
    known = {name: ALL_MASK_ATTENTION_FUNCTIONS[name] for name in ("sdpa", "eager")}
    for name, make in known.items():
        ALL_MASK_ATTENTION_FUNCTIONS[name] = partial(_unread, make, device)
    try:
        yield
    finally:
        for name, make in known.items():
            # What stands behind it is what was there, unless that was put there too.
            del ALL_MASK_ATTENTION_FUNCTIONS[name]
            if ALL_MASK_ATTENTION_FUNCTIONS[name] is not make:
                ALL_MASK_ATTENTION_FUNCTIONS[name] = make


def _unread(make: Callable[..., Tensor | None], device: str, /, **given: Any) -> Tensor | None:
    mask = given.get("attention_mask")
    if mask is not None and mask.device.type == device:
        given |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return make(**given)
