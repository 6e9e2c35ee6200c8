"""What is said about texts that are longer than a model reads."""

from __future__ import annotations

from stillery.progress import detail, say

__all__ = ["say_cut"]


def say_cut(split: str, line: str) -> None:
    """Say that texts of a split were cut; of a run's dev and test split that is a detail beside its training split."""
    (detail if split in ("dev", "test") else say)(line)
