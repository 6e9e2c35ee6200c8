"""Errors of safetensors and tokenizers for a full disk as an `OSError`, which Python's own writes raise."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["saving"]

_SYSTEM = re.compile(r"\(os error (\d+)\)")


@contextmanager
def saving(place: Path) -> Iterator[None]:
    """Raise system errors inside the block as an `OSError` that names `place`, whichever library wrote there."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        # Both libraries are written in Rust and give the system error as text only.
        found = _SYSTEM.search(str(error))
        if found is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), str(place)) from None
