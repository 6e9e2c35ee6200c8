"""Verbosity of a job: the messages it prints while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

__all__ = ["Verbosity", "verbosity", "verbosity_as"]


class Verbosity(IntEnum):
    """The level of messages: warnings only; progress; details too, such as caches, layer pairs and initialisations."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2

    @classmethod
    def of(cls, *, quiet: bool, verbose: bool) -> Verbosity:
        """Return the level for the switches `--quiet` and `--verbose`."""
        return cls.QUIET if quiet else cls.VERBOSE if verbose else cls.NORMAL


_now = [Verbosity.NORMAL]


def verbosity() -> Verbosity:
    """Return the current level."""
    return _now[-1]


@contextmanager
def verbosity_as(level: Verbosity) -> Iterator[None]:
    """Set the level inside the block."""
    _now.append(level)
    try:
        yield
    finally:
        _now.pop()
