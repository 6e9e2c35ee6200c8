"""The words a user chooses from, kept apart so that reading settings loads no model code."""

from __future__ import annotations

__all__ = ["HEADS", "LAYER_CHOICES"]

HEADS = ("fresh", "reuse", "reuse-frozen")
"""The student's classifier: new, the teacher's to train on, or the teacher's as it is."""

LAYER_CHOICES = ("even", "first", "last")
"""Which layers of the source a student copies."""
