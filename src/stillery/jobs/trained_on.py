"""Warning about scoring a model on its own training data."""

from __future__ import annotations

import filecmp
from pathlib import Path

from stillery.jobs.config.run_file import trained_on
from stillery.jobs.config.settings import DataSettings
from stillery.progress import say

__all__ = ["warn_of_seen"]


def warn_of_seen(model: str, data: DataSettings, split: str | None) -> None:
    """Warn if a whole file is scored and the model was trained on rows of it."""
    if split is not None or data.data is None:
        return
    learnt, scored = trained_on(model), Path(data.data).resolve()
    if learnt is not None and (learnt == scored or _same_table(learnt, scored)):
        say(f"warning: {model} was trained on rows of {data.data}; --split test scores those it has not seen")


def _same_table(one: Path, other: Path) -> bool:
    """Return whether two files have the same name and content, as for a table in memory that was given twice."""
    return one.name == other.name and other.is_file() and filecmp.cmp(one, other, shallow=False)
