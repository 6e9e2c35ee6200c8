"""Freeing memory that torch holds without using it."""

from __future__ import annotations

from contextlib import suppress

import torch

__all__ = ["free_cached", "free_workspaces"]


def free_workspaces() -> None:
    """Free the workspaces of matrix products on a GPU: 32 MB for each thread and stream that ever ran one."""
    getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()


def free_cached() -> None:
    """Free unused memory of a GPU, and unused pinned memory."""
    # After a recording that failed torch may refuse to.
    with suppress(RuntimeError):
        torch.cuda.empty_cache()
    getattr(torch._C, "_host_emptyCache", lambda: None)()
