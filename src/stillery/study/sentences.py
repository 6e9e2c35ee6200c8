"""Pieces of sentences that every reading has."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["count_seeds", "listed", "p_text"]


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def p_text(value: float) -> str:
    """A p value as a sentence has it.

    >>> p_text(0.0002), p_text(0.0312)
    ('p < 0.001', 'p = 0.031')
    """
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def count_seeds(count: int) -> str:
    """A number of seeds.

    >>> count_seeds(1), count_seeds(5)
    ('1 seed', '5 seeds')
    """
    return "1 seed" if count == 1 else f"{count} seeds"
