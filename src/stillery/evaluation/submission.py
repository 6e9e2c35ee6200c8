"""Predictions in the format of the GLUE leaderboard: one tab-separated file for each test split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from stillery.atomic import atomic_file
from stillery.data.tasks.specification import Task
from stillery.errors import UserError
from stillery.evaluation.metrics import predicted

__all__ = ["submission_files", "write_submission"]

LOWEST, HIGHEST = 0.0, 5.0


def submission_files(folder: Path, task: Task) -> list[Path]:
    """The paths of the leaderboard files of a task's test splits."""
    return [_file(folder, name) for name in task.submissions.values()]


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.tsv"


def write_submission(folder: Path, name: str, logits: NDArray[Any], task: Task) -> Path:
    """Write `NAME.tsv` with a row `index, prediction` for each test example, and return its path.

    Args:
        folder: the output folder, created if it does not exist.
        name: the leaderboard's name of the split, such as MNLI-mm (see `Task.submissions`).
        logits: `[n, task classes]` in the task's order of classes, or `[n, 1]`, in the order of the official test file.
        task: MNLI, QNLI and RTE are written as class names, STS-B as scores between 0 and 5, others as 0 and 1.
    """
    if name not in task.submissions.values():
        known = ", ".join(task.submissions.values()) or "none"
        raise UserError(f"{task.name} has no leaderboard file {name!r}; known: {known}")
    lines = [f"{index}\t{value}" for index, value in enumerate(_values(logits, task))]
    path = _file(folder, name)
    with atomic_file(path) as part:
        part.write_text("\n".join(["index\tprediction", *lines]) + "\n", encoding="utf-8")
    return path


def _values(logits: NDArray[Any], task: Task) -> list[str]:
    found = predicted(logits, task.labels)
    if task.labels.regression:
        return [f"{value:.3f}" for value in found.clip(LOWEST, HIGHEST)]
    return [task.labels.names[index] if task.named else str(index) for index in found]
