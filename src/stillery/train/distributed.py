"""What the processes of a run tell each other."""

from __future__ import annotations

from typing import TypeVar

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object

__all__ = ["first_of_any", "from_main"]

Found = TypeVar("Found")


def from_main(accelerator: Accelerator, found: Found) -> Found:
    """What the main process has found, in every process."""
    if accelerator.num_processes == 1:
        return found
    told = [found]
    broadcast_object_list(told)
    return told[0]


def first_of_any(accelerator: Accelerator, found: Found | None) -> Found | None:
    """What the first process that found anything has found, in every process."""
    if accelerator.num_processes == 1:
        return found
    return next((one for one in gather_object([found]) if one is not None), None)
