"""Reading of texts from benchmark files, where a missing text counts as empty and is not an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stillery.errors import UserError

__all__ = ["filled", "texts_of"]


def texts_of(column: pa.Array, name: str, path: Path) -> pa.Array:
    """Read a column as large strings; nulls become empty strings."""
    try:
        return pc.fill_null(column.cast(pa.large_string()), "")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise UserError(f"{path}: column {name!r} holds {column.type} values, not text") from None


def filled(texts: pa.Array) -> NDArray[np.bool_]:
    """Return a mask of the texts that are not blank."""
    found: NDArray[np.bool_] = pc.not_equal(pc.utf8_trim_whitespace(texts), "").to_numpy(zero_copy_only=False)
    return found
