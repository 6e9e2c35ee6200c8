"""Runs that share a teacher store take turns at its arrays, and none waits for one that stands still.

A run takes every turn that is free and fills those arrays, gives the turns back, and only then waits for the others. So
whoever waits holds nothing that anybody waits for.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from stillery.data.cache.locks import Turn
from stillery.progress import say
from stillery.train.teacher_cache.contents import What

__all__ = ["Turns", "Waiting"]

_LOOK_SECONDS = 0.1
# Between two looks longer than this it was the one who waits that stood still.
_MOST_SECONDS = 1.0
# A shorter wait is not worth a line.
_SAY_SECONDS = 1.0


class Turns:
    """The turns of a process at the arrays of a store; all are given back at the end of the block."""

    def __init__(self, folders: Mapping[What, Path], about: str) -> None:
        self._turns = {what: Turn(folder, about) for what, folder in folders.items()}
        self.taken: list[What] = []

    def __enter__(self) -> Turns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()

    def take(self, arrays: Collection[What]) -> None:
        """Take the turn at those of these arrays where nobody has it."""
        for what in sorted(arrays):
            if what not in self.taken and self._turns[what].take():
                self.taken.append(what)

    def moved(self) -> None:
        """Tell those who wait that work goes on."""
        for what in self.taken:
            self._turns[what].moved()

    def let_go(self) -> None:
        """Give every turn back."""
        for what in self.taken:
            self._turns[what].let_go()
        self.taken.clear()

    def of(self, arrays: Collection[What]) -> dict[str, Turn]:
        """The turns at these arrays, by the arrays' names."""
        return {str(what): self._turns[what] for what in sorted(arrays)}


@dataclass
class _Still:
    """When somebody last moved, as far as one who looks can tell, and the seconds since."""

    move: object
    seconds: float = 0.0


@dataclass(kw_only=True)
class Waiting:
    """Waits for others as long as they work: at most so many `seconds` of standstill. `aloud` is who says so."""

    seconds: float
    aloud: bool = True
    _still: dict[str, _Still] = field(default_factory=dict, init=False)
    _looked: float | None = field(default=None, init=False)
    _waited: float = field(default=0.0, init=False)
    _said: str = field(default="", init=False)

    def a_moment(self, turns: Mapping[str, Turn]) -> str | None:
        """Wait a moment for those who have these turns, named by what they have; why not, where one stands still."""
        now = time.monotonic()
        passed = min(now - self._looked, _MOST_SECONDS) if self._looked is not None else 0.0
        self._looked, self._waited = now, self._waited + passed
        self._still = {name: self._since_move(name, turn, passed) for name, turn in turns.items()}
        standing = [name for name, still in self._still.items() if still.seconds >= self.seconds]
        if standing:
            return f"for {self.seconds:g} s nothing was done by {_who(standing, turns)}"
        if self._waited >= _SAY_SECONDS and (line := _who(turns, turns)) != self._said:
            self._said = line
            if self.aloud:
                say(f"teacher store: waiting for {line}")
        time.sleep(_LOOK_SECONDS)
        return None

    def _since_move(self, name: str, turn: Turn, passed: float) -> _Still:
        before, move = self._still.get(name), turn.last_move()
        if before is None or before.move != move:
            return _Still(move)
        return _Still(move, before.seconds + passed)


def _who(names: Collection[str], turns: Mapping[str, Turn]) -> str:
    """Those who have these turns, each with what it is at."""
    having: dict[str, list[str]] = {}
    for name in names:
        having.setdefault(turns[name].holder(), []).append(name)
    return " and ".join(f"{holder} at {', '.join(its)}" for holder, its in having.items())
