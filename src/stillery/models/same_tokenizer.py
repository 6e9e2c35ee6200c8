"""Comparison of two models' tokenizers, which must agree to match layers or outputs token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stillery.models.load_model import Loaded

__all__ = ["tokenizer_difference"]

_PROBE = "The quick brown fox can't jump over 13 lazy dogs: naïve, isn't it? Überraschung!"


def tokenizer_difference(teacher: Loaded, student: Loaded) -> str | None:
    """Describe how the tokenizers of two models differ; None if they produce the same tokens for the same text."""
    ours, theirs = teacher.tokenizer.get_vocab(), student.tokenizer.get_vocab()
    if ours != theirs:
        different = len(set(ours.items()) ^ set(theirs.items()))
        return (
            f"the tokenizers of {teacher.name} ({len(ours)} tokens) and {student.name} ({len(theirs)} tokens) differ "
            f"in {different} entries"
        )
    if teacher.tokenizer(_PROBE)["input_ids"] != student.tokenizer(_PROBE)["input_ids"]:
        return f"the tokenizers of {teacher.name} and {student.name} split text differently"
    return None
