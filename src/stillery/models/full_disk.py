"""Weights and tokenizers are written in Rust, which has errors of its own for a full disk."""

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
    """What the system refuses inside the block is an `OSError` that names `place`, whoever writes there."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        # safetensors and tokenizers say in words what the system answered.
        found = _SYSTEM.search(str(error))
        if found is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), str(place)) from None
