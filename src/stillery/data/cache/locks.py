"""What in the cache is in use: whose turn it is to change a folder, and who reads a file.

Nothing here waits. A turn is a lock of the operating system (by `filelock`, on Windows too), which lets go of it when
its process ends, however that ends. Readers share files, which `filelock` knows nothing of; Windows refuses by itself
to move a folder of which a file is open.
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

__all__ = ["Turn", "share", "unused"]

_LOCK, _NOTE = "turn.lock", "turn.json"
# File systems without locks: two who do the same there write the same.
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}
_NOTE_SECONDS = 0.25


class Turn:
    """The turn of one process at a time at a folder; beside its lock a note says who has it, and that work goes on.

    The note's time changes with every piece of work (`moved`), so that whoever waits can tell a process that is slow
    from one that was stopped.
    """

    def __init__(self, folder: Path, about: str = "") -> None:
        self.folder, self.about = folder, about
        self._note = folder / _NOTE
        # The soft lock that filelock would fall back to is a file, which a killed process leaves behind for good.
        self._lock = FileLock(folder / _LOCK, fallback_to_soft=False)
        self._mine, self._noted = False, 0.0

    def take(self) -> bool:
        """Take the turn if nobody has it; never waits."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        except PermissionError:
            # The lock of another user, who may be at work or not.
            if not (self.folder / _LOCK).exists():
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
        """Note that work goes on."""
        now = time.monotonic()
        if now - self._noted >= _NOTE_SECONDS:
            self._noted = now
            with suppress(OSError):
                os.utime(self._note)

    def let_go(self) -> None:
        """Give the turn back, if it was taken."""
        if not self._mine:
            return
        self._mine = False
        with suppress(OSError):
            self._note.unlink()
        self._lock.release()

    def holder(self) -> str:
        """Who has the turn, in words."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(note["since"]))
            about = f"{note['about']}, " if note["about"] else ""
            return f"process {note['process']} on {note['host']} ({about}since {since})"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    def last_move(self) -> object:
        """Something that changes when whoever has the turn moves on, or another takes it."""
        try:
            found = self._note.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns


def share(descriptor: int) -> bool:
    """Hold an open file together with others, until nothing of it is open; False where one has it for itself."""
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
    """Hold every file of a folder for this process alone, or none of them: False where anybody holds one."""
    try:
        import fcntl
    except ImportError:
        # Whoever has a file open is in the way of a folder that is to be moved.
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
