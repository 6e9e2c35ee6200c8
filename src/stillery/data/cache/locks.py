"""Locks of the cache: exclusive locks for writing to a folder, and shared locks for reading its files.

Nothing here blocks. A turn is a lock of the operating system (by `filelock`, on Windows too), which is released when
its process ends, however that happens. Readers share files, which `filelock` does not support; Windows itself refuses
to move a folder with an open file.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

__all__ = ["TURN", "Turn", "share", "unused"]

TURN, _NOTE = "turn.lock", "turn.json"
# File systems without locks: two processes doing the same work write the same there.
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}
_NOTE_SECONDS = 0.25


class Turn:
    """An exclusive lock on a folder, with a note file that records the holder and its progress.

    The note's modification time is updated with every step of work (`moved`), so that a waiting process can tell a slow
    holder from a stopped one.
    """

    def __init__(self, folder: Path, about: str = "") -> None:
        self.folder, self.about = folder, about
        self._note = folder / _NOTE
        # The soft lock that filelock would fall back to is a file, which a killed process never removes.
        self._lock = FileLock(folder / TURN, fallback_to_soft=False)
        self._mine, self._noted = False, 0.0

    def take(self) -> bool:
        """Acquire the lock if it is free, without waiting; return whether it was."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        except PermissionError:
            # The lock file of another user, who may or may not hold it.
            if not (self.folder / TURN).exists():
                raise
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        self._mine = True
        with suppress(OSError):
            note = {"process": os.getpid(), "host": socket.gethostname(), "about": self.about, "since": time.time()}
            self._note.write_text(json.dumps(note), encoding="utf-8")
        return True

    def moved(self) -> None:
        """Record progress in the note file."""
        now = time.monotonic()
        if now - self._noted >= _NOTE_SECONDS:
            self._noted = now
            with suppress(OSError):
                os.utime(self._note)

    def let_go(self) -> None:
        """Release the lock, if it is held."""
        if not self._mine:
            return
        self._mine = False
        with suppress(OSError):
            self._note.unlink()
        self._lock.release()

    def holder(self) -> str:
        """A description of the process that holds the lock."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(note["since"]))
            about = f"{note['about']}, " if note["about"] else ""
            return f"process {note['process']} on {note['host']} ({about}since {since})"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    def last_move(self) -> object:
        """A value that changes when the holder makes progress or another process takes the lock."""
        try:
            found = self._note.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns


def share(descriptor: int) -> bool:
    """Take a shared lock on an open file, until it is closed; False if a process has locked it exclusively."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # A file system without locks.
        return True
    return True


@contextmanager
def unused(folder: Path) -> Iterator[bool]:
    """Lock every file of a folder exclusively, or none of them: False if any process has locked one."""
    try:
        import fcntl
    except ImportError:
        # Windows refuses to move a folder while one of its files is open.
        yield True
        return
    with ExitStack() as held:
        free = True
        for place in sorted(folder.iterdir()):
            descriptor = os.open(place, os.O_RDONLY)
            held.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                free = False
                break
            except OSError:
                continue
        if not free:
            held.close()
        yield free
