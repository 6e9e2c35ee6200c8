"""Commands in a fork of the test process: processes of their own, as a user's, without seconds of imports for each."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stillery.cli.main import main

__all__ = ["Process", "start"]


@dataclass(kw_only=True)
class Process:
    """A command that was started; `said` is the file of what it prints on stderr."""

    pid: int
    said: Path
    code: int | None = None

    @property
    def err(self) -> str:
        """What it has printed on stderr so far."""
        return self.said.read_text(encoding="utf-8", errors="replace")

    def poll(self) -> int | None:
        """Return its exit code, negative after a signal; None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self, seconds: float = 120) -> int:
        """Wait for its end and return its exit code; one that takes longer is killed."""
        until = time.monotonic() + seconds
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                self.kill()
                raise AssertionError(f"still running after {seconds:g} s: {self.err}")
            time.sleep(0.002)
        return code

    def until(self, there: Callable[[], bool], seconds: float = 120) -> None:
        """Wait for a moment of its work."""
        end = time.monotonic() + seconds
        while not there():
            assert self.poll() is None, self.err
            assert time.monotonic() < end, self.err
            time.sleep(0.001)

    def send(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        if self.poll() is None:
            self.send(signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self.code = os.waitstatus_to_exitcode(status)


def start(said: Path, *arguments: object, before: Callable[[], object] = lambda: None) -> Process:
    """Start a command; `before` is called in its process first, and its stderr goes to the file `said`.

    Without arguments `before` is all that is done.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Process(pid=pid, said=said)
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.stderr = said.open("w", encoding="utf-8", buffering=1)
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        before()
        if arguments:
            main([str(argument) for argument in arguments])
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        # Not `exit`: the fork must not end the test session.
        os._exit(code)
