"""Functions that free memory cached by torch."""

from __future__ import annotations

from contextlib import suppress

import torch

__all__ = ["free_cached", "free_workspaces"]


def free_workspaces() -> None:
    """Free cuBLAS workspaces on a GPU: 32 MB for each thread and stream that ever ran a matrix product."""
    getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()


def free_cached() -> None:
    """Free torch's cached GPU memory and cached pinned memory."""
    # torch may refuse after a failed recording.
    with suppress(RuntimeError):
        torch.cuda.empty_cache()
    getattr(torch._C, "_host_emptyCache", lambda: None)()
