"""The values of model options, in a module without imports so that reading settings stays fast."""

from __future__ import annotations

__all__ = [
    "AUTO",
    "DEFAULT_START",
    "DEFAULT_STARTS",
    "DEFAULT_TEXT_START",
    "HEADS",
    "LAYER_CHOICES",
    "POOLINGS",
    "PROJECTORS",
    "REUSES",
    "STARTS",
]

HEADS = ("fresh", "reuse", "reuse-frozen")
"""The student's classifier: new, the teacher's trained further, or the teacher's frozen."""

REUSES = ("pooler+linear", "linear")
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens")
"""The supported kinds of pooling of token states, in the order in which several are concatenated."""

"""The reused part of the teacher's head: pooler and linear classifier, or the linear classifier alone."""

PROJECTORS = ("linear", "mlp")
"""The projector between the student's feature and the reused head."""

LAYER_CHOICES = ("even", "first", "last", "important")
"""The layers of the source that a student copies; important ones have the largest block influence."""

DEFAULT_START, DEFAULT_TEXT_START = "first", "even"
"""The initialisations of classifiers, and of models that generate or embed texts, where a method has no own."""

DEFAULT_STARTS = f"the paper's, else {DEFAULT_START}; {DEFAULT_TEXT_START} for models that generate or embed texts"
"""The default of --init in words."""

AUTO = "auto"
"""The option value that chooses the initialisation by a short trial."""

STARTS = (*LAYER_CHOICES, "random", AUTO)
"""The named initialisations; any other value is a checkpoint."""
