"""Progress bars in a notebook: one line of plain text that is overwritten, so that no further package is needed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = ["NotebookBar", "clock", "in_notebook", "notebook_bar"]

EVERY = 0.5
"""Seconds between two updates: often enough, and a saved notebook stays small."""

_WIDTH = 24


def in_notebook() -> bool:
    """Return whether this runs in a notebook cell, such as Jupyter's, without importing IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


class NotebookBar:
    """A progress bar that is one line of text on stderr."""

    def __init__(self, description: str, total: int | None, *, silent: bool = False) -> None:
        self._description, self._total, self._silent = description, total, silent
        self._done, self._note, self._length = 0, "", 0
        self._began = time.monotonic()
        self._shown = -EVERY

    def advance(self, amount: int = 1, note: Sequence[str] | None = None) -> None:
        """Advance the bar, and change the note at its end when one is given."""
        self._done += amount
        self._note = self._note if note is None else " ".join(note)
        now = time.monotonic()
        if now - self._shown >= EVERY:
            self._shown = now
            self.show()

    def line(self) -> str:
        """Return the line to show: progress, elapsed and remaining time, and the note."""
        seconds = time.monotonic() - self._began
        times, filled = clock(seconds), ""
        if self._total:
            share = min(self._done / self._total, 1.0)
            filled = f"[{'#' * int(share * _WIDTH):<{_WIDTH}}] "
            left = clock(seconds * (1 - share) / share) if share else "-:--"
            times = f"{times}<{left}"
        of = f"{self._done}/{self._total}" if self._total else str(self._done)
        return f"{self._description} {filled}{of} {times} {self._note}".rstrip()

    def show(self, end: str = "") -> None:
        """Overwrite the previous line."""
        if self._silent:
            return
        line = self.line()
        # A notebook's carriage return does not clear a longer previous line.
        print(f"\r{line:<{self._length}}", end=end, file=sys.stderr, flush=True)
        self._length = len(line)


@contextmanager
def notebook_bar(description: str, total: int | None, *, silent: bool = False) -> Iterator[NotebookBar]:
    """Show a bar for the duration of the block; its last line stays."""
    found = NotebookBar(description, total, silent=silent)
    try:
        yield found
    finally:
        found.show(end="\n")


def clock(seconds: float) -> str:
    """Format a duration as minutes and seconds, with hours if there are any.

    >>> clock(83.4), clock(3725)
    ('1:23', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
