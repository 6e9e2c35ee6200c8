"""Messages about texts that are truncated to a model's maximum length."""

from __future__ import annotations

from stillery.progress import detail, say

__all__ = ["say_cut"]


def say_cut(split: str, line: str) -> None:
    """Report that texts of a split were truncated; for the dev and test splits of a run only as a detail."""
    (detail if split in ("dev", "test") else say)(line)
