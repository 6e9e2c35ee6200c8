"""Progress bars and messages on stderr, so that stdout holds results only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from stillery.notebook import in_notebook, notebook_bar

__all__ = ["Bar", "bar", "console", "quiet", "say", "track", "worded"]

Item = TypeVar("Item")

# In a notebook too this is plain text on stderr: rich's own way there needs ipywidgets.
console = Console(stderr=True, highlight=False, soft_wrap=True, force_jupyter=False)


class Bar(Protocol):
    """One running progress bar."""

    def advance(self, amount: int = 1, note: str | None = None) -> None:
        """Advance the bar, and change the note at its end when one is given."""


@dataclass(frozen=True)
class _RichBar:
    """A bar on a terminal."""

    progress: Progress
    task: int

    def advance(self, amount: int = 1, note: str | None = None) -> None:
        """Advance the bar, and change the note at its end when one is given."""
        task = self.progress.task_ids[self.task]
        self.progress.update(task, advance=amount)
        if note is not None:
            self.progress.update(task, note=note)


@contextmanager
def quiet() -> Iterator[None]:
    """No messages and no bars inside the block."""
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before


_wordings: list[Callable[[str], str]] = []


@contextmanager
def worded(wording: Callable[[str], str]) -> Iterator[None]:
    """Change every line that is said inside the block, such as names of files that a user has not given."""
    _wordings.append(wording)
    try:
        yield
    finally:
        _wordings.pop()


def say(line: str) -> None:
    """Print one line on stderr (plain text: square brackets are not markup)."""
    for wording in reversed(_wordings):
        line = wording(line)
    console.print(line, markup=False)


@contextmanager
def bar(description: str, total: int | None) -> Iterator[Bar]:
    """A progress bar for the duration of the block; without a terminal one line at the end instead."""
    if in_notebook():
        with notebook_bar(description, total, silent=console.quiet) as line:
            yield line
        return
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        transient=console.is_terminal,
    )
    with progress:
        progress.add_task(description, total=total, note="")
        yield _RichBar(progress, 0)


def track(items: Iterable[Item], description: str | None, total: int | None = None) -> Iterator[Item]:
    """Yield the items behind a progress bar of that description; None means no bar."""
    if description is None:
        yield from items
        return
    size = total if total is not None else (len(items) if hasattr(items, "__len__") else None)  # type: ignore[arg-type]
    with bar(description, size) as shown:
        for item in items:
            yield item
            shown.advance()
