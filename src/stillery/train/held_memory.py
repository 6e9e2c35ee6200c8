"""Keep memory that one step frees for the next, where the C library would return it to the system."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["held_heap"]

# The numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# More than any tensor of a step, and than all of them together.
_HELD = {_MMAP_THRESHOLD: 1 << 30, _TRIM_THRESHOLD: (1 << 31) - 1}
# Where glibc itself ends up in a process that frees large pieces.
_USUAL = {_MMAP_THRESHOLD: 32 << 20, _TRIM_THRESHOLD: 64 << 20}
_OWN = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


@contextmanager
def held_heap() -> Iterator[None]:
    """Keep memory that is freed in the block for later allocations in it; after it, return free memory to the system.

    A step on a CPU allocates and frees its activations and gradients, the largest of them tens of megabytes. glibc
    returns pieces of that size to the system, which then has to zero every page of them again. Settings of glibc from
    the environment stay, and other C libraries are left alone.
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
    """A function of the C library, if it has it."""
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
    return found
