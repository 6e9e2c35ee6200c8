"""Texts of benchmark files, where a missing text is an empty one and no error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stillery.errors import UserError

__all__ = ["filled", "texts_of"]


def texts_of(column: pa.Array, name: str, path: Path) -> pa.Array:
    """A column as large strings, empty where it has none."""
    try:
        return pc.fill_null(column.cast(pa.large_string()), "")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise UserError(f"{path}: column {name!r} holds {column.type} values, not text") from None


def filled(texts: pa.Array) -> NDArray[np.bool_]:
    """Which of the texts are more than blank."""
    found: NDArray[np.bool_] = pc.not_equal(pc.utf8_trim_whitespace(texts), "").to_numpy(zero_copy_only=False)
    return found
