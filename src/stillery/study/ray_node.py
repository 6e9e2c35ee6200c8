"""What a node of a Ray cluster is asked before it gets workers; it imports next to nothing, so that it answers soon."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

__all__ = ["comes", "installed", "look", "nothing"]

_SEE = 5.0
"""Seconds within which a file has to come that another machine wrote."""


def look(marker: Path, name: str, paths: Sequence[str], needed: Sequence[str], ours: str | None) -> str | None:
    """On a node: what is wrong with it."""
    if not comes(marker / "driver"):
        return f"{marker.parent} is not there: give an --out on a disk that all nodes share"
    try:
        (marker / name).write_text(name, encoding="utf-8")
    except OSError as error:
        return f"{marker.parent} cannot be written to ({error.strerror or error})"
    if installed() != ours:
        return f"it has stillery {installed()}, and this machine {ours}: install the same"
    for package in needed:
        if find_spec(package) is None:
            return f'the package {package} is missing: pip install "stillery[search]"'
    gone = [path for path in paths if not Path(path).exists()]
    return f"{gone[0]} is not there: put the plan's files on a disk that all nodes share" if gone else None


def comes(path: Path) -> bool:
    """Whether a file is there, or comes within seconds: a network file system may show it late."""
    until = time.monotonic() + _SEE
    while not path.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def installed() -> str | None:
    """The version of stillery on this machine."""
    try:
        return version("stillery")
    except PackageNotFoundError:
        return None


def nothing() -> None:
    """Show that a node is there."""
