"""Errors of a lack of memory, which libraries raise under several names."""

from __future__ import annotations

__all__ = ["lacking_memory"]

_CUDA = ("cuda", "cublas", "cudnn", "hip ")
_WORDS = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory", "alloc_failed",
          "std::bad_alloc")  # fmt: skip


def lacking_memory(error: BaseException) -> str | None:
    """Return "memory" or "GPU memory" if that has run out; None for any other error.

    >>> lacking_memory(MemoryError())
    'memory'
    >>> lacking_memory(RuntimeError("CUDA error: out of memory"))
    'GPU memory'
    >>> lacking_memory(RuntimeError("shapes do not match"))
    """
    said = str(error).lower()
    # By its name, as torch need not have been loaded.
    known = isinstance(error, MemoryError) or any(one.__name__ == "OutOfMemoryError" for one in type(error).__mro__)
    if not known and not (isinstance(error, RuntimeError) and any(word in said for word in _WORDS)):
        return None
    return "GPU memory" if any(word in said for word in _CUDA) else "memory"
