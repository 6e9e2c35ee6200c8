"""Errors in single rows of a file: raised at the first one, or gathered to report all of them together."""

from __future__ import annotations

from stillery.data.readers.row_numbers import at, at_rows
from stillery.errors import UserError

__all__ = ["RowErrors"]

MOST_LINES = 10


class RowErrors:
    """Errors by message, each with its rows; with `gather`, reading continues after an error.

    >>> errors = RowErrors("a.csv", gather=True)
    >>> errors.add(3, "no text")
    >>> errors.add(5, "no text")
    >>> errors.lines()
    ['a.csv, row 3 (also 5): no text']
    """

    def __init__(self, where: str, *, gather: bool = False) -> None:
        self.where = where
        self.gather = gather
        self.found: dict[str, list[int]] = {}
        self.positions: set[int] = set()

    def add(self, row: int, what: str, position: int | None = None) -> None:
        """Record that a row, counted from 1, cannot be read; raise UserError at once unless errors are gathered.

        `position` is its index among the rows that are read, from 1, if that differs from its number in the file.
        """
        if not self.gather:
            raise UserError(f"{at(self.where, row)}: {what}")
        self.found.setdefault(what, []).append(row)
        self.positions.add(row if position is None else position)

    def lines(self) -> list[str]:
        """One line per kind of error, and the number of rows with further ones."""
        said = list(self.found.items())
        lines = [f"{at_rows(self.where, rows)}: {what}" for what, rows in said[:MOST_LINES]]
        more = sum(len(rows) for _, rows in said[MOST_LINES:])
        return [*lines, f"{self.where}: {more} more rows cannot be read"] if more else lines
