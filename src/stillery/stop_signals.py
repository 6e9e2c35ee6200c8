"""SIGINT (Ctrl-C) and SIGTERM: both stop a command with a line, and training after a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["StopAfterStep", "Terminated", "interruption", "sigterm_raises", "stop_after_step"]


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does, with another exit code."""


class StopAfterStep:
    """The signal that asked to stop, if one has; training stops with a checkpoint at the end of its step."""

    def __init__(self) -> None:
        self.number: int | None = None

    def note(self, number: int, _: FrameType | None) -> None:
        """Handle a signal: the first one is noted, another one stops at once."""
        if self.number is not None:
            raise interruption(number)
        self.number = number

    def check(self) -> None:
        """Raise what the signal asked for, if one has come."""
        if self.number is not None:
            raise interruption(self.number)


def interruption(number: int, saved: int | None = None) -> KeyboardInterrupt:
    """Return the exception for a signal; `saved` is the step at which a checkpoint was written because of it."""
    kind = Terminated if number == signal.SIGTERM else KeyboardInterrupt
    return kind() if saved is None else kind(saved)


@contextmanager
def stop_after_step() -> Iterator[StopAfterStep]:
    """Note signals inside the block instead of raising them at once; what is still noted at its end is raised then.

    Handlers of others are left alone, and so are signals that are ignored, as Ctrl-C is in the background of a shell.
    """
    asked = StopAfterStep()
    with _handled({signal.SIGINT: asked.note, signal.SIGTERM: asked.note}):
        yield asked
    asked.check()


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Raise `Terminated` where SIGTERM comes inside the block, so that what was begun is left as after Ctrl-C."""

    def stop(number: int, _: FrameType | None) -> None:
        raise interruption(number)

    with _handled({signal.SIGTERM: stop}):
        yield


_OURS: set[Any] = {signal.SIG_DFL, signal.default_int_handler}


@contextmanager
def _handled(handlers: dict[signal.Signals, Callable[[int, FrameType | None], Any]]) -> Iterator[None]:
    """Set handlers for signals that nobody else handles; only the main thread can."""
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: found for number in handlers if (found := signal.getsignal(number)) in _OURS}
    _OURS.update(handlers.values())
    try:
        for number in before:
            signal.signal(number, handlers[number])
        yield
    finally:
        for number, found in before.items():
            signal.signal(number, found)
        _OURS.difference_update(handlers.values())
