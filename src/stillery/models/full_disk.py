"""Conversion of system errors in safetensors and tokenizers, such as a full disk, to `OSError`."""

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
    """Raise any library's system errors inside the block as an `OSError` that names `place`."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        # Both libraries are written in Rust and report the system error as text only.
        found = _SYSTEM.search(str(error))
        if found is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), str(place)) from None
