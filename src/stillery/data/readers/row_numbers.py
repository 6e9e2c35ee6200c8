"""Row numbers in error messages."""

from __future__ import annotations

from collections.abc import Sequence

from stillery.lines import listed

__all__ = ["INVISIBLE", "NESTED", "at", "at_rows", "at_token"]

LISTED = 5

INVISIBLE = " \t\r\n\u00a0\u200b\u200c\u200d\u2060\ufeff"
"""Whitespace and other invisible characters: zero-width characters and the byte order mark."""

NESTED = b"stillery first nested row"
"""Metadata key of a text column with lists or objects written out as text: the number of the first such row."""


def at(where: str, row: int) -> str:
    """The location of one data row, counted from 1; row 0 is the header."""
    return f"{where}, row {row}" if row else f"{where}, header"


def at_token(where: str, row: int, token: int | None = None, first_line: int | None = None) -> str:
    """The location of a sentence or one of its tokens, both counted from 1; in a CoNLL file with its line.

    >>> at_token("dev.jsonl", 3, 2), at_token("dev.conll", 3, 2, first_line=14)
    ('dev.jsonl, row 3, token 2', 'dev.conll, line 15 (sentence 3, token 2)')
    """
    if first_line is None:
        return at(where, row) if token is None else f"{at(where, row)}, token {token}"
    inside = f"sentence {row}" if token is None else f"sentence {row}, token {token}"
    return f"{where}, line {first_line + (token or 1) - 1} ({inside})"


def at_rows(where: str, rows: Sequence[int]) -> str:
    """The location of several rows: the first, a few more, and the number of others.

    >>> at_rows("reviews.csv", [7, 9, 12])
    'reviews.csv, row 7 (also 9, 12)'
    """
    place = at(where, rows[0])
    if len(rows) == 1:
        return place
    return f"{place} (also {listed(rows[1:], LISTED - 1)})"
