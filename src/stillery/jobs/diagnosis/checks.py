"""The checks of a diagnosis: functions of the evidence of a run that return a finding, or None.

To add one, write a function in a file `check_*.py` and name it in `CHECKS`. It raises `NotExamined` where what it reads
is missing, says only what was measured, and names the option to change. Its name, with spaces, is what users see.
"""

from __future__ import annotations

from collections.abc import Callable

from stillery.jobs.diagnosis.check_examples import (
    noisy_labels,
    not_learnt,
    overfitting,
    truncated_texts,
    unknown_words,
)
from stillery.jobs.diagnosis.check_gradients import dominating_term, projection_rank
from stillery.jobs.diagnosis.check_predictions import one_answer, small_split, weak_teacher
from stillery.jobs.diagnosis.check_start import worse_start
from stillery.jobs.diagnosis.check_steps import (
    exploded_loss,
    few_prediction_steps,
    flat_loss,
    still_rising,
)
from stillery.jobs.diagnosis.evidence import Evidence
from stillery.jobs.diagnosis.findings import Finding

__all__ = ["CHECKS", "Check"]

Check = Callable[[Evidence], Finding | None]

CHECKS: tuple[Check, ...] = (
    weak_teacher,
    one_answer,
    exploded_loss,
    projection_rank,
    dominating_term,
    few_prediction_steps,
    flat_loss,
    noisy_labels,
    not_learnt,
    overfitting,
    worse_start,
    still_rising,
    truncated_texts,
    unknown_words,
    small_split,
)
"""All checks; findings of equal severity are listed in this order."""
