"""Values that the processes of a run exchange."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object

from stillery.errors import UserError

__all__ = ["first_of_any", "from_main", "raised_in_all"]

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


@contextmanager
def raised_in_all(accelerator: Accelerator) -> Iterator[None]:
    """Raise a UserError of the main process's block in every process; all of them wait for its end."""
    lines: tuple[str, ...] = ()
    try:
        yield
    except UserError as error:
        if not accelerator.is_main_process:
            raise
        lines = error.lines
    lines = from_main(accelerator, lines)
    if lines:
        raise UserError(*lines)
