"""Errors in user input, one line each.

Invalid input raises `UserError`; the command line prints its lines and exits with code 2.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from stillery.lines import listed, plain
from stillery.stop_signals import Terminated

__all__ = ["ErrorList", "Interrupted", "LostProcess", "Stopped", "UserError", "nearest"]


class UserError(Exception):
    """One or more errors in user input; each line states what is wrong, where, and how to fix it."""

    def __init__(self, *lines: str) -> None:
        self.lines = tuple(plain(" ".join(line.split())) for line in lines)
        super().__init__("; ".join(self.lines))


class ErrorList:
    """Collects errors so that all of them are reported together.

    >>> errors = ErrorList()
    >>> with errors.catch():
    ...     raise UserError("no such file: a.csv")
    >>> errors.add("width 10 is not divisible by 3 heads")
    >>> errors.lines
    ['no such file: a.csv', 'width 10 is not divisible by 3 heads']
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        """Add one error."""
        if line not in self.lines:
            self.lines.append(line)

    @contextmanager
    def catch(self) -> Iterator[None]:
        """Collect the errors raised inside the block and continue after it."""
        try:
            yield
        except UserError as error:
            for line in error.lines:
                self.add(line)

    def raise_any(self) -> None:
        """Raise one `UserError` with all collected lines, if there are any."""
        if self.lines:
            raise UserError(*self.lines)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint for a mistyped word: the closest known word, or all known words."""
    options = sorted(known)
    folded = {option.casefold(): option for option in options}
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.5)
    return f"did you mean {folded[close[0]]!r}?" if close else f"known: {listed(options, 40)}"


class Stopped(Exception):
    """A run that cannot continue, in one line; the command line prints it and exits with code 1."""


class LostProcess(Stopped):
    """A run in several processes that cannot continue because another one of them ended."""


class Interrupted(Exception):
    """A command stopped by a signal, in one line; the command line prints it and exits with code 130 or 143.

    `by` is what was raised: SIGTERM, which other programs stop this one with, has words and a code of its own.
    """

    def __init__(self, rest: str, by: KeyboardInterrupt) -> None:
        terminated = isinstance(by, Terminated)
        saved = f" at step {by.args[0]}, which is saved" if by.args else ""
        self.code = 143 if terminated else 130
        super().__init__(f"{'stopped by SIGTERM' if terminated else 'interrupted'}{saved}{rest}")
