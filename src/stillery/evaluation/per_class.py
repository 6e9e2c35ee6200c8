"""Precision, recall and F1 per class or label, and the classes without examples in a split."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_fscore_support

from stillery.data.schema.labels import Labels
from stillery.evaluation.metrics import predicted
from stillery.lines import listed

__all__ = ["absent", "absent_note", "per_class"]


def per_class(gold: NDArray[Any], logits: NDArray[Any], labels: Labels) -> dict[str, dict[str, float]]:
    """Precision, recall and F1 of each class in percent, 0 where undefined, and its number of examples."""
    if labels.regression:
        return {}
    places = None if labels.multi else np.arange(labels.count)
    found = precision_recall_fscore_support(gold, predicted(logits, labels), labels=places, zero_division=0)
    rows = zip(*(values.tolist() for values in found), strict=True)
    return {
        name: {
            "precision": round(100 * precision, 4),
            "recall": round(100 * recall, 4),
            "f1": round(100 * f1, 4),
            "examples": int(examples),
        }
        for name, (precision, recall, f1, examples) in zip(labels.names, rows, strict=True)
    }


def absent(gold: NDArray[Any], labels: Labels) -> list[str]:
    """The classes that no example has."""
    if labels.regression:
        return []
    counts = gold.sum(axis=0) if labels.multi else np.bincount(gold, minlength=labels.count)
    return [name for name, count in zip(labels.names, counts, strict=True) if not count]


def absent_note(names: list[str], *, several: bool) -> str:
    """A note on how the absence of classes affects macro F1."""
    it, are = ("it", "it is") if len(names) == 1 else ("them", "they are")
    counted = f"counts {it} as 0" + ("" if several else f" where {are} predicted, and else leaves {it} out")
    return f"no example of {listed(names)}: f1_macro {counted}"
