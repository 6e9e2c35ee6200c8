"""Suppression of transformers' messages, progress bars and weight-conversion requests."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging

__all__ = ["quiet", "reading_weights"]

_CONVERSION = "DISABLE_SAFETENSORS_CONVERSION"


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress messages and progress bars of transformers inside the block; stillery reports problems itself."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def reading_weights() -> Iterator[None]:
    """Inside the block read `.bin` weights without warnings or requests to the hub to convert them."""
    before = os.environ.get(_CONVERSION)
    os.environ[_CONVERSION] = "1"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            yield
    finally:
        if before is None:
            del os.environ[_CONVERSION]
        else:
            os.environ[_CONVERSION] = before
