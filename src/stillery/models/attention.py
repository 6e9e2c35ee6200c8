"""The choice of torch's fused attention kernels, and attention masks built without synchronising with the GPU."""

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
    """Disable cuDNN's attention inside the block, because it compiles a plan for every batch size and length.

    On an H200 a plan takes as long as training on tens of short batches; torch's own kernels are as fast and need none.
    """
    # torch below 2.5 may lack this function.
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
    """Inside the block always build attention masks on this device, without reading their values.

    transformers omits the mask if no position is padding. To check that, the host has to wait for the GPU in every
    step, and a step captured as a CUDA graph, where values cannot be read, would differ.
    """
    known = {name: ALL_MASK_ATTENTION_FUNCTIONS[name] for name in ("sdpa", "eager")}
    for name, make in known.items():
        ALL_MASK_ATTENTION_FUNCTIONS[name] = partial(_unread, make, device)
    try:
        yield
    finally:
        for name, make in known.items():
            # Restores the function that was set before: the built-in one, or one that was registered.
            del ALL_MASK_ATTENTION_FUNCTIONS[name]
            if ALL_MASK_ATTENTION_FUNCTIONS[name] is not make:
                ALL_MASK_ATTENTION_FUNCTIONS[name] = make


def _unread(make: Callable[..., Tensor | None], device: str, /, **given: Any) -> Tensor | None:
    mask = given.get("attention_mask")
    if mask is not None and mask.device.type == device:
        given |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return make(**given)
