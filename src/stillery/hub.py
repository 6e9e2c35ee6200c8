"""Asking the Hugging Face hub without waiting long for one that does not answer.

The hub's own client asks six times, with pauses, before it gives up: minutes, in silence. Here every request ends when
nothing has come for a few seconds, and a hub that did not answer once is not asked again for a while.
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
"""Seconds to wait for the hub's first answer."""

STALLED = 10.0
"""Seconds without a byte or a result after which a request is given up."""

REMEMBERED = 60.0
"""Seconds for which a hub that did not answer is not asked again."""

Found = TypeVar("Found")

_asked: dict[str, tuple[float, str]] = {}
"""For each place of a hub: when it was asked last, and why there was no answer; nothing where there was one."""


class NoAnswer(Exception):
    """Why the hub could not be asked, in a few words."""


def offline() -> str | None:
    """The variable by which a user says that the hub is not to be asked; None where nothing does."""
    from huggingface_hub import constants

    if not constants.HF_HUB_OFFLINE:
        return None
    return next((name for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if os.environ.get(name)), "HF_HUB_OFFLINE")


def silent() -> str | None:
    """Why the hub did not answer, where it was asked within the last minute in vain."""
    from huggingface_hub import constants

    return _asked[constants.ENDPOINT][1] or None if _lately(constants.ENDPOINT) else None


def _lately(endpoint: str) -> bool:
    return endpoint in _asked and time.monotonic() - _asked[endpoint][0] < REMEMBERED


def ask(work: Callable[[], Found], *, growing: Path | None = None, patience: float = STALLED) -> Found:
    """The result of requests to the hub, or `NoAnswer` as soon as it does not answer any more.

    A download may take as long as it wants while the files in `growing` grow. What `work` raises is raised.
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
    """Whether anything answers there at all."""
    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=CONNECT):
            return
    except urllib.error.HTTPError:
        return
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        # The client may know certificates that Python does not.
        if not isinstance(reason, ssl.SSLError):
            stalled = isinstance(reason, TimeoutError)
            raise NoAnswer("the hub does not answer" if stalled else "the hub cannot be reached") from None


def _in_time(work: Callable[[], Found], patience: float, growing: Path | None) -> Found:
    """What a function returns or raises, unless nothing happens for so many seconds."""
    results: list[Found] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    # What is given up on may hang on; as a daemon it does not keep the process from ending.
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
    """How much is in a folder."""
    if folder is None:
        return 0
    try:
        return sum(file.lstat().st_size for file in folder.rglob("*"))
    except OSError:
        return 0
