"""One run at a time in an output folder: a lock of the operating system, released when its process ends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from stillery.data.cache.locks import TURN, Turn, share
from stillery.errors import UserError

if TYPE_CHECKING:
    from accelerate import Accelerator

__all__ = ["LOCK", "check_free", "only_run_in"]

LOCK = ".stillery-lock"
"""The folder of the lock in a run folder; it is gone once the run is finished or has stopped."""


def check_free(out: Path) -> None:
    """Raise UserError if a run is in progress in a folder, as far as this is known before it is prepared."""
    try:
        descriptor = os.open(out / LOCK / TURN, os.O_RDONLY)
    except OSError:
        return
    try:
        # Shared, so that the processes of one run may all look at once.
        if not share(descriptor):
            raise _in_use(out)
    finally:
        os.close(descriptor)


@contextmanager
def only_run_in(out: Path, accelerator: Accelerator, *, needed: bool = True) -> Iterator[None]:
    """Keep a folder for this run while the block runs; raise UserError, in every process, if another run is in it.

    A folder that holds nothing at the end is removed again. Without `needed`, as for a run that is finished, nothing is
    written.
    """
    # Not at the top: this is checked before torch is loaded.
    from stillery.train.distributed import raised_in_all

    turn: Turn | None = None
    with raised_in_all(accelerator):
        if accelerator.is_main_process and (needed or (out / LOCK).is_dir()):
            with _unless(needed):
                turn = _taken(out)
    try:
        yield
    finally:
        if turn is not None:
            # While it is held: who waits for this very file finds that it was removed, and refuses or starts again.
            shutil.rmtree(out / LOCK, ignore_errors=True)
            turn.let_go()
            with suppress(OSError):
                out.rmdir()


@contextmanager
def _unless(needed: bool) -> Iterator[None]:
    """Continue without the lock where it is not needed; it is taken to remove what a killed process left of it."""
    try:
        yield
    except UserError:
        if needed:
            raise


def _taken(out: Path) -> Turn:
    try:
        (out / LOCK).mkdir(parents=True, exist_ok=True)
        turn = Turn(out / LOCK, f"in {out}")
        if turn.take():
            return turn
    except FileNotFoundError:
        # The other run ended in this moment, and removed its lock.
        pass
    except OSError as error:
        raise UserError(f"--out {out} cannot be written ({error.strerror or error}): give another folder") from None
    raise _in_use(out)


def _in_use(out: Path) -> UserError:
    holder = Turn(out / LOCK).holder().replace(f" (in {out}, ", " (")
    return UserError(f"--out {out} is in use by {holder}: wait for it, stop it, or give another folder")
