"""The message after Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stillery.errors import Interrupted

__all__ = ["interruptible"]


@contextmanager
def interruptible(out: Path, *, overwrite: bool = False) -> Iterator[None]:
    """Stopped inside the block, a run ends with a line that says whether there is something to go on with.

    With `overwrite` that may be an earlier run, which this one has not replaced yet.
    """
    before = _written(out) if overwrite else None
    try:
        yield
    except KeyboardInterrupt:
        now = _written(out)
        said = f"the run in {out} goes on with --resume" if now is not None else f"nothing was written to {out}"
        if now is not None and now == before:
            said = f"the earlier run in {out} is as it was"
        raise Interrupted(f"interrupted; {said}") from None


def _written(out: Path) -> tuple[int, int] | None:
    """Which file a folder's run file is; None where there is none."""
    try:
        found = (out / "run.toml").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
