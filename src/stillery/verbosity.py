"""How much a job says about itself while it works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

__all__ = ["Verbosity", "verbosity", "verbosity_as"]


class Verbosity(IntEnum):
    """How much is said: only warnings; what is going on; details too, such as caches, pairs of layers and starts."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2

    @classmethod
    def of(cls, *, quiet: bool, verbose: bool) -> Verbosity:
        """The level that two switches stand for."""
        return cls.QUIET if quiet else cls.VERBOSE if verbose else cls.NORMAL


_now = [Verbosity.NORMAL]


def verbosity() -> Verbosity:
    """How much is said now."""
    return _now[-1]


@contextmanager
def verbosity_as(level: Verbosity) -> Iterator[None]:
    """Say as much inside the block."""
    _now.append(level)
    try:
        yield
    finally:
        _now.pop()
