"""Requests to the Hugging Face hub with short timeouts.

The hub's own client tries six times, with pauses, before it gives up: minutes without a message. Here every request
is abandoned after a few seconds without data, and an unreachable hub is not contacted again for a while.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = ["NoAnswer", "ask", "offline", "silent"]

CONNECT = 5.0
"""Connection timeout in seconds."""

STALLED = 10.0
"""Seconds without a byte or a result after which a request is abandoned."""

REMEMBERED = 60.0
"""Seconds for which an unreachable hub is not contacted again."""

Found = TypeVar("Found")

_asked: dict[str, tuple[float, str]] = {}
"""For each hub endpoint: the time of the last request, and why it failed; an empty text if it succeeded."""


class NoAnswer(Exception):
    """The hub is offline or unreachable; the message gives the reason in a few words."""


def offline() -> str | None:
    """Return the environment variable that turns on offline mode; None if it is off."""
    from huggingface_hub import constants

    if not constants.HF_HUB_OFFLINE:
        return None
    return next((name for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if os.environ.get(name)), "HF_HUB_OFFLINE")


def silent() -> str | None:
    """Return why the hub was unreachable, if a request failed within the last minute; else None."""
    from huggingface_hub import constants

    return _asked[constants.ENDPOINT][1] or None if _lately(constants.ENDPOINT) else None


def _lately(endpoint: str) -> bool:
    return endpoint in _asked and time.monotonic() - _asked[endpoint][0] < REMEMBERED


def ask(work: Callable[[], Found], *, growing: Path | None = None, patience: float = STALLED) -> Found:
    """Run requests to the hub and return their result; raise `NoAnswer` as soon as it stops responding.

    A download may take any time while the files in `growing` grow. Exceptions of `work` are passed on.
    """
    from huggingface_hub import constants

    if name := offline():
        raise NoAnswer(f"{name} is set")
    if why := silent():
        raise NoAnswer(why)
    endpoint = constants.ENDPOINT
    try:
        if not _lately(endpoint):
            _in_time(lambda: _answers(endpoint), CONNECT + 1, None)
        found = _in_time(work, patience, growing)
    except NoAnswer as error:
        _asked[endpoint] = time.monotonic(), str(error)
        raise
    _asked[endpoint] = time.monotonic(), ""
    return found


def _answers(endpoint: str) -> None:
    """Raise NoAnswer if the endpoint does not respond to a HEAD request."""
    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=CONNECT):
            return
    except urllib.error.HTTPError:
        return
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        # The client may have certificates that Python does not.
        if not isinstance(reason, ssl.SSLError):
            stalled = isinstance(reason, TimeoutError)
            raise NoAnswer("the hub does not answer" if stalled else "the hub cannot be reached") from None


def _in_time(work: Callable[[], Found], patience: float, growing: Path | None) -> Found:
    """Run a function in a thread; raise NoAnswer after `patience` seconds without progress."""
    results: list[Found] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    # An abandoned request may still hang; a daemon thread does not keep the process from ending.
    thread = threading.Thread(target=run, daemon=True, name="stillery-hub")
    thread.start()
    size, since = -1, time.monotonic()
    while thread.is_alive():
        thread.join(0.1)
        now = _bytes(growing)
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > patience:
            raise NoAnswer("the hub does not answer")
    if errors:
        raise errors[0]
    return results[0]


def _bytes(folder: Path | None) -> int:
    """Return the total size of a folder's files; 0 without one."""
    if folder is None:
        return 0
    try:
        return sum(file.lstat().st_size for file in folder.rglob("*"))
    except OSError:
        return 0
