"""What in the cache is in use: held by processes, and let go by the system when they end."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

__all__ = ["locked", "share"]


@contextmanager
def locked(places: Sequence[Path], *, wait: bool = True) -> Iterator[bool]:
    """Hold folders or files for this process alone; the system lets go of them if it dies. False when others hold one.

    Always taken in the same order, so that two who want the same ones do not wait for each other.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows: two who fill the same write the same
        yield True
        return
    with ExitStack() as held:
        for place in sorted(places):
            descriptor = os.open(place, os.O_RDONLY)
            held.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            except OSError:
                # A file system without locks: as above.
                continue
        yield True


def share(descriptor: int) -> None:
    """Hold an open file together with others, until nothing of it is open."""
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
