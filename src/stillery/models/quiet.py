"""Silence the messages and progress bars of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging

__all__ = ["quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """No messages and no progress bars of transformers inside the block; stillery reports problems itself."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
