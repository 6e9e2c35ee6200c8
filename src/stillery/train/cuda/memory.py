"""Memory that torch holds without using it, given back."""

from __future__ import annotations

from contextlib import suppress

import torch

__all__ = ["free_cached", "free_workspaces"]


def free_workspaces() -> None:
    """Free what matrix products keep on a GPU: 32 MB for each thread and stream that ever ran one."""
    getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()


def free_cached() -> None:
    """Free memory of a GPU, and pinned memory, that nothing is in."""
    # After a recording that failed torch may refuse to.
    with suppress(RuntimeError):
        torch.cuda.empty_cache()
    getattr(torch._C, "_host_emptyCache", lambda: None)()
