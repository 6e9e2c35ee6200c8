"""What a user who stops a run is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stillery.errors import Interrupted

__all__ = ["interruptible"]


@contextmanager
def interruptible(out: Path) -> Iterator[None]:
    """Stopped inside the block, a run ends with a line that says whether there is something to go on with."""
    try:
        yield
    except KeyboardInterrupt:
        begun = (out / "run.toml").is_file()
        said = f"the run in {out} goes on with --resume" if begun else f"no run was begun in {out}"
        raise Interrupted(f"interrupted; {said}") from None
