"""Agreement of a student with its teacher on examples without labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.data.schema.labels import Labels
from stillery.evaluation.bootstrap import bounds, replicates
from stillery.evaluation.metrics import agreement, predicted

__all__ = ["agreement_evaluation"]


def agreement_evaluation(
    task: str, logits: NDArray[Any], teacher_logits: NDArray[Any], labels: Labels
) -> dict[str, Any]:
    """An evaluation whose only metric is the agreement with the teacher, in percent with its 95% interval."""
    value = agreement(logits, teacher_logits, labels)
    return {
        "task": task,
        "examples": len(logits),
        "metrics": {"agreement": round(value, 4)},
        "intervals": {"agreement": [round(bound, 4) for bound in _interval(logits, teacher_logits, labels)]},
        "unlabelled": True,
    }


def _interval(
    logits: NDArray[Any], teacher_logits: NDArray[Any], labels: Labels, draws: int = 1000
) -> tuple[float, float]:
    """The 95% percentile bootstrap interval over examples."""
    ours, theirs = predicted(logits, labels), predicted(teacher_logits, labels)
    if labels.regression:
        return bounds(replicates(theirs, [ours], "pearson", draws=draws, seed=0)[:, 0], 0.95)
    same = (ours == theirs).reshape(len(ours), -1).mean(axis=1)
    rows = np.random.default_rng(0).integers(0, len(same), (draws, len(same)))
    return bounds(100 * same[rows].mean(axis=1), 0.95)
