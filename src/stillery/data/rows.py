"""How a fault names the rows it is about."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["at", "at_rows"]

LISTED = 5


def at(where: str, row: int) -> str:
    """The place of one data row, counted from 1; row 0 is the header."""
    return f"{where}, row {row}" if row else f"{where}, header"


def at_rows(where: str, rows: Sequence[int]) -> str:
    """The place of several rows: the first, a few more, and how many others.

    >>> at_rows("reviews.csv", [7, 9, 12])
    'reviews.csv, row 7 (also 9, 12)'
    """
    place = at(where, rows[0])
    if len(rows) == 1:
        return place
    more = ", ".join(str(row) for row in rows[1:LISTED])
    left = len(rows) - LISTED
    return f"{place} (also {more} and {left} more)" if left > 0 else f"{place} (also {more})"
