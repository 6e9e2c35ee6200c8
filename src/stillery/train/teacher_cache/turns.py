"""Locks ("turns") with which runs share the filling of a teacher cache, without waiting for stalled runs.

A run takes every free turn, fills those arrays, releases the turns, and only then waits for the others. So a waiting
run holds no turn that another waits for.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from stillery.data.cache.locks import Turn
from stillery.progress import say
from stillery.train.teacher_cache.contents import CachedArray

__all__ = ["Turns", "Waiting"]

_POLL_SECONDS = 0.1
# Where more time passes between two polls, the waiting process itself was stopped.
_MOST_SECONDS = 1.0
# Shorter waits are not reported.
_SAY_SECONDS = 1.0


class Turns:
    """The turns of a process for the arrays of a cache; all are released at the end of the block."""

    def __init__(self, folders: Mapping[CachedArray, Path], about: str) -> None:
        self._turns = {array: Turn(folder, about) for array, folder in folders.items()}
        self.taken: list[CachedArray] = []

    def __enter__(self) -> Turns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def take(self, arrays: Collection[CachedArray]) -> None:
        """Take the turns for these arrays that no other process holds."""
        for array in sorted(arrays):
            if array not in self.taken and self._turns[array].take():
                self.taken.append(array)

    def moved(self) -> None:
        """Signal progress to waiting processes."""
        for array in self.taken:
            self._turns[array].moved()

    def release(self) -> None:
        """Release every turn."""
        for array in self.taken:
            self._turns[array].let_go()
        self.taken.clear()

    def of(self, arrays: Collection[CachedArray]) -> dict[str, Turn]:
        """The turns for these arrays, by the arrays' names."""
        return {str(array): self._turns[array] for array in sorted(arrays)}


@dataclass
class _Standstill:
    """The last progress signal of a process being waited for, and the seconds since it was seen."""

    move: object
    seconds: float = 0.0


@dataclass(kw_only=True)
class Waiting:
    """Waits for other processes, at most `seconds` without progress; with `aloud` the wait is reported."""

    seconds: float
    aloud: bool = True
    _standstill: dict[str, _Standstill] = field(default_factory=dict, init=False)
    _polled: float | None = field(default=None, init=False)
    _waited: float = field(default=0.0, init=False)
    _said: str = field(default="", init=False)

    def a_moment(self, turns: Mapping[str, Turn]) -> str | None:
        """Wait briefly for the holders of these turns, by array name; return a reason if one makes no progress."""
        now = time.monotonic()
        passed = min(now - self._polled, _MOST_SECONDS) if self._polled is not None else 0.0
        self._polled, self._waited = now, self._waited + passed
        self._standstill = {name: self._since_move(name, turn, passed) for name, turn in turns.items()}
        standing = [name for name, still in self._standstill.items() if still.seconds >= self.seconds]
        if standing:
            return f"for {self.seconds:g} s nothing was done by {_who(standing, turns)}"
        if self._waited >= _SAY_SECONDS and (line := _who(turns, turns)) != self._said:
            self._said = line
            if self.aloud:
                say(f"teacher cache: waiting for {line}")
        time.sleep(_POLL_SECONDS)
        return None

    def _since_move(self, name: str, turn: Turn, passed: float) -> _Standstill:
        before, move = self._standstill.get(name), turn.last_move()
        if before is None or before.move != move:
            return _Standstill(move)
        return _Standstill(move, before.seconds + passed)


def _who(names: Collection[str], turns: Mapping[str, Turn]) -> str:
    """Format the holders of these turns, each with its arrays."""
    having: dict[str, list[str]] = {}
    for name in names:
        having.setdefault(turns[name].holder(), []).append(name)
    return " and ".join(f"{holder} at {', '.join(its)}" for holder, its in having.items())
