"""Progress bars and messages on stderr, so that stdout holds results only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from stillery.lines import plain, width_of, wrapped
from stillery.notebook import clock, in_notebook, notebook_bar
from stillery.verbosity import Verbosity, verbosity

__all__ = ["Bar", "bar", "console", "detail", "each_once", "quiet", "say", "track", "worded"]

Item = TypeVar("Item")

# Plain text on stderr in a notebook too: rich's own notebook support needs ipywidgets.
console = Console(stderr=True, highlight=False, soft_wrap=True, force_jupyter=False)


_WORTH_A_LINE = 2.0
"""Minimum duration in seconds for which the completion of a job is logged to a file or a pipe."""


_WARNING = "warning: "


class Bar(Protocol):
    """One running progress bar."""

    def advance(self, amount: int = 1, note: Sequence[str] | None = None) -> None:
        """Advance the bar, and change the note at its end: as many of its pieces are shown as fit."""


@dataclass(frozen=True)
class _RichBar:
    """A bar on a terminal."""

    progress: Progress
    task: int

    def advance(self, amount: int = 1, note: Sequence[str] | None = None) -> None:
        """Advance the bar, and change the note at its end when one is given."""
        task = self.progress.task_ids[self.task]
        self.progress.update(task, advance=amount)
        if note is not None:
            self.progress.update(task, note=tuple(note))


class _EndBar:
    """A bar for a file or a pipe, where lines cannot be overwritten: it prints one line when done."""

    def __init__(self, description: str, total: int | None) -> None:
        self._description, self._total = description, total
        self._done, self._began = 0, time.monotonic()
        self._note: Sequence[str] = ()

    def advance(self, amount: int = 1, note: Sequence[str] | None = None) -> None:
        """Count, and store the note for the last line."""
        self._done += amount
        self._note = self._note if note is None else note

    def show(self) -> None:
        """Print progress, duration and the last note; for a short job only with `--verbose`."""
        seconds = time.monotonic() - self._began
        of = f"{self._done}/{self._total}" if self._total else str(self._done)
        line = "  ".join([f"{self._description}: {of} in {clock(seconds)}", *self._note])
        (say if seconds >= _WORTH_A_LINE else detail)(line)


@dataclass(frozen=True)
class _Pieces:
    """The first pieces of a note, as many as fit, so that no number is cut."""

    pieces: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown, room = "", options.max_width
        for place, piece in enumerate(self.pieces):
            longer = plain(f"{shown}  {piece}" if shown else piece)
            more = " …" if place < len(self.pieces) - 1 else ""
            if len(longer) + len(more) > room:
                # There is room for the ellipsis, which was reserved for the previous pieces.
                shown = f"{shown} …" if shown else ""
                break
            shown = longer
        yield Text(shown, no_wrap=True, overflow="crop")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(0, len("  ".join(self.pieces)))


class _NoteColumn(ProgressColumn):
    """The note at the end of a bar, in the space left by the other columns."""

    def __init__(self) -> None:
        super().__init__(table_column=Column(ratio=1, no_wrap=True))

    def render(self, task: Task) -> _Pieces:
        """Return the pieces of the note."""
        return _Pieces(task.fields["note"])


class _DescriptionColumn(ProgressColumn):
    """The description; the only column that shrinks if the terminal is too narrow for all."""

    def render(self, task: Task) -> Text:
        """Return the description, on one line."""
        return Text(task.description, no_wrap=True, overflow="ellipsis")


def _columns(width: int) -> list[ProgressColumn]:
    """Return the columns: step, total, elapsed and remaining time always; the bar takes the remaining width."""
    return [
        SpinnerColumn(table_column=Column(no_wrap=True)),
        _DescriptionColumn(),
        BarColumn(bar_width=max(4, min(40, (width - 48) // 2)), table_column=Column(no_wrap=True)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        _NoteColumn(),
    ]


def _silent() -> bool:
    return console.quiet or verbosity() is Verbosity.QUIET


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress all messages and bars inside the block, even warnings: for work that is part of another job."""
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before


_wordings: list[Callable[[str], str | None]] = []


@contextmanager
def worded(wording: Callable[[str], str | None]) -> Iterator[None]:
    """Rewrite every message inside the block, such as to replace names of temporary files.

    A message for which `wording` returns None is dropped.
    """
    _wordings.append(wording)
    try:
        yield
    finally:
        _wordings.pop()


def each_once() -> AbstractContextManager[None]:
    """Print each message only once inside the block, as when several runs read the same data."""
    said: set[str] = set()

    def new(line: str) -> str | None:
        return None if line in said or said.add(line) else line  # type: ignore[func-returns-value]

    return worded(new)


def say(line: str) -> None:
    """Print one line on stderr (plain text: square brackets are not markup).

    With `--quiet` only lines that begin with `warning: ` are printed.
    """
    if verbosity() is not Verbosity.QUIET or line.startswith(_WARNING):
        _print(line)


def detail(line: str) -> None:
    """Print one line with `--verbose` only: neither needed to act on nor part of a result."""
    if verbosity() is Verbosity.VERBOSE:
        _print(line)


def _print(line: str) -> None:
    worded_line: str | None = line
    for wording in reversed(_wordings):
        worded_line = wording(worded_line) if worded_line is not None else None
    if worded_line is not None:
        console.print(wrapped(plain(worded_line), None if in_notebook() else width_of(console.file)), markup=False)


@contextmanager
def bar(description: str, total: int | None) -> Iterator[Bar]:
    """Show a progress bar for the duration of the block; without a terminal one line at the end instead."""
    description = plain(description)
    if in_notebook():
        with notebook_bar(description, total, silent=_silent()) as line:
            yield line
    elif not console.is_terminal or _silent():
        counted = _EndBar(description, total)
        try:
            yield counted
        finally:
            counted.show()
    else:
        progress = Progress(*_columns(console.width), console=console, transient=True, expand=True)
        with progress:
            progress.add_task(description, total=total, note=())
            yield _RichBar(progress, 0)


def track(items: Iterable[Item], description: str | None, total: int | None = None) -> Iterator[Item]:
    """Yield the items with a progress bar of that description; None means no bar."""
    if description is None:
        yield from items
        return
    size = total if total is not None else (len(items) if hasattr(items, "__len__") else None)  # type: ignore[arg-type]
    with bar(description, size) as shown:
        for item in items:
            yield item
            shown.advance()
