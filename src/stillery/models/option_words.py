"""The words a user chooses from, kept apart so that reading settings loads no model code."""

from __future__ import annotations

__all__ = ["AUTO", "DEFAULT_START", "DEFAULT_TEXT_START", "HEADS", "LAYER_CHOICES", "PROJECTORS", "REUSES", "STARTS"]

HEADS = ("fresh", "reuse", "reuse-frozen")
"""The student's classifier: new, the teacher's to train on, or the teacher's as it is."""

REUSES = ("pooler+linear", "linear")
"""What of the teacher's head is reused: its pooler and its linear classifier, or the linear classifier alone."""

PROJECTORS = ("linear", "mlp")
"""What takes the student's feature to what the reused head expects."""

LAYER_CHOICES = ("even", "first", "last", "important")
"""Which layers of the source a student copies; the important ones are those that change its states most."""

DEFAULT_START, DEFAULT_TEXT_START = "first", "even"
"""The start of a classifier, and of a model that generates text, where the method's paper does not fix one."""

AUTO = "auto"
"""The start is chosen by a short trial."""

STARTS = (*LAYER_CHOICES, "random", AUTO)
"""The starts that have a name; any other is a checkpoint."""
