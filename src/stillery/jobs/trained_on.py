"""Whether a model is scored on what it was trained on."""

from __future__ import annotations

from pathlib import Path

from stillery.jobs.config.run_file import trained_on
from stillery.jobs.config.settings import DataSettings
from stillery.progress import say

__all__ = ["warn_of_seen"]


def warn_of_seen(model: str, data: DataSettings, split: str | None) -> None:
    """Say so where a whole file is scored that a model was trained on rows of."""
    if split is None and data.data is not None and trained_on(model) == Path(data.data).resolve():
        say(f"warning: {model} was trained on rows of {data.data}; --split test scores those it has not seen")
