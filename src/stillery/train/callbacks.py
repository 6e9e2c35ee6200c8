"""User callbacks of a run, which receive its losses and scores and may stop it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

__all__ = ["STOP", "Callback", "Stop", "asks_to_stop"]


class Stop(Enum):
    """The type of `STOP`, which a callback returns to stop its run."""

    STOP = "stop"

    def __repr__(self) -> str:
        return "stillery.STOP"


STOP = Stop.STOP

Callback = Callable[[int, Mapping[str, float]], object]
"""Called with the number of steps taken and metrics by name; returning `STOP` or False stops the run."""


def asks_to_stop(returned: object) -> bool:
    """Return whether a callback's return value stops the run.

    >>> asks_to_stop(STOP), asks_to_stop(False), asks_to_stop(None), asks_to_stop(0)
    (True, True, False, False)
    """
    return returned is STOP or returned is False
