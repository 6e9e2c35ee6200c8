"""Reuse freed host memory across steps, instead of letting glibc return it to the operating system."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["held_heap"]

# Option numbers from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# More than any tensor of a step, and than all of them together.
_HELD = {_MMAP_THRESHOLD: 1 << 30, _TRIM_THRESHOLD: (1 << 31) - 1}
# The thresholds that glibc adapts to in a process that frees large blocks.
_USUAL = {_MMAP_THRESHOLD: 32 << 20, _TRIM_THRESHOLD: 64 << 20}
_OWN = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


@contextmanager
def held_heap() -> Iterator[None]:
    """Inside the block keep freed memory for later allocations; at its end return free memory to the system.

    A step on a CPU allocates and frees its activations and gradients, the largest of them tens of megabytes. glibc
    returns blocks of that size to the system, which then has to zero every page of them again. malloc settings from the
    environment take precedence, and other C libraries are left alone.
    """
    set_option, trim = _malloc("mallopt"), _malloc("malloc_trim")
    if set_option is None or trim is None or any(name in os.environ for name in _OWN):
        yield
        return
    for option, size in _HELD.items():
        set_option(option, size)
    try:
        yield
    finally:
        for option, size in _USUAL.items():
            set_option(option, size)
        trim(0)


def _malloc(name: str) -> Callable[..., int] | None:
    """Look up a function of the C library; None if it is missing."""
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
    return found
