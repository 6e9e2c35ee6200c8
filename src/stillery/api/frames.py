"""Results returned as the type of table that the input was: pandas, polars or pyarrow."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stillery.api.tables import library_of
from stillery.jobs.result import as_frame

__all__ = ["like"]


def like(given: Any, written: Path) -> Any:
    """Return the table in a Parquet file in the type of the input: pandas with its index, polars, or pyarrow."""
    table = pq.read_table(written)
    library = library_of(given)
    if library == "pandas" and hasattr(given, "columns"):
        frame = table.to_pandas()
        frame.index = given.index
        return frame
    if library == "polars" and hasattr(given, "columns"):
        return importlib.import_module("polars").from_arrow(table)
    return table if isinstance(given, pa.Table | pa.RecordBatch) else as_frame(table)
