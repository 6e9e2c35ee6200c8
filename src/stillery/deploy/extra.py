"""The packages of the extra `onnx`, and their messages."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from stillery.errors import UserError

__all__ = ["check_installed", "without_messages"]

_TO_RUN = ("onnxruntime",)
_TO_WRITE = ("onnx", "onnxscript", *_TO_RUN)


def check_installed(*, write: bool) -> None:
    """Raise UserError where a package of the extra is missing; with `write` those that write ONNX files too."""
    missing = [name for name in (_TO_WRITE if write else _TO_RUN) if importlib.util.find_spec(name) is None]
    if missing:
        what = f"ONNX files need {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
        raise UserError(f'{what}: pip install "stillery[onnx]"')


@contextmanager
def without_messages() -> Iterator[None]:
    """Suppress warnings and log messages of the exporter and the quantiser, which report each step, in the block."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
