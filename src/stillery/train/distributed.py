"""Values that the processes of a run exchange."""

from __future__ import annotations

from typing import TypeVar

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object

__all__ = ["first_of_any", "from_main"]

Found = TypeVar("Found")


def from_main(accelerator: Accelerator, found: Found) -> Found:
    """The main process's value, in every process."""
    if accelerator.num_processes == 1:
        return found
    values = [found]
    broadcast_object_list(values)
    return values[0]


def first_of_any(accelerator: Accelerator, found: Found | None) -> Found | None:
    """The value of the first process that has one, in every process."""
    if accelerator.num_processes == 1:
        return found
    return next((one for one in gather_object([found]) if one is not None), None)
