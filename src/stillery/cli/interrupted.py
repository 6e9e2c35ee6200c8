"""The message when a run is stopped by Ctrl-C or SIGTERM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stillery.errors import Interrupted

__all__ = ["interruptible"]


@contextmanager
def interruptible(out: Path, *, overwrite: bool = False) -> Iterator[None]:
    """Turn Ctrl-C or SIGTERM inside the block into an error line that reports whether the run can be resumed.

    With `overwrite` the folder may still hold an earlier run, which this one has not replaced yet.
    """
    before = _written(out) if overwrite else None
    try:
        yield
    except KeyboardInterrupt as stopped:
        now = _written(out)
        said = f"the run in {out} continues with --resume" if now is not None else f"nothing was written to {out}"
        if now is not None and now == before:
            said = f"the earlier run in {out} is as it was"
        raise Interrupted(f"; {said}", stopped) from None


def _written(out: Path) -> tuple[int, int] | None:
    """Return the identity of a folder's run file (inode and time); None if there is none."""
    try:
        found = (out / "run.toml").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
