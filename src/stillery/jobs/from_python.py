"""Objects that only a run started from Python can have: data and models in memory, callbacks, a user-defined metric."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from stillery.atomic import atomic_file, atomic_folder
from stillery.jobs.config.settings import Distill, Finetune
from stillery.train.callbacks import Callback

__all__ = ["FromPython", "MetricFunction"]

Run = TypeVar("Run", Finetune, Distill)

MetricFunction = Callable[[Any, Any], Any]
"""A function of labels and predictions that returns a number, or numbers by name."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FromPython:
    """Data, models and functions passed from Python.

    Attributes:
        staged: files and folders written for data and models in memory, mapped to their place in the run folder.
        on_step: called with the loss and its terms after every step.
        on_score: called with the metrics of every scoring of the dev split.
        metric: a metric that selects the best weights.
    """

    staged: Mapping[Path, Path] = field(default_factory=dict)
    on_step: Callback | None = None
    on_score: Callback | None = None
    metric: MetricFunction | None = None

    @property
    def functions(self) -> tuple[str, ...] | None:
        """The names of the functions given, for the run file, which cannot hold them; None without any."""
        return tuple(name for name in ("metric", "on_step", "on_score") if getattr(self, name) is not None) or None

    def named(self, run: Run) -> Run:
        """Return the run with staged paths replaced by their places in its folder, and the names of its functions."""
        there = {str(path): str(place) for path, place in self.staged.items()}

        def place(value: str | None) -> str | None:
            return there.get(value, value) if value is not None else None

        changes: dict[str, Any] = {"data": dataclasses.replace(run.data, data=place(run.data.data))}
        if isinstance(run, Distill):
            method = run.method
            changes["teacher"] = place(run.teacher)
            changes["method"] = dataclasses.replace(
                method, ild_data=place(method.ild_data), ild_teacher=place(method.ild_teacher)
            )
        else:
            changes["model"] = place(run.model)
        return dataclasses.replace(run, **changes, given_in_python=self.functions)

    def keep(self) -> None:
        """Copy staged files and folders to their places in the run folder, unless they exist already."""
        for path, place in self.staged.items():
            if place.exists():
                continue
            if path.is_dir():
                with atomic_folder(place) as part:
                    shutil.copytree(path, part, dirs_exist_ok=True)
            else:
                with atomic_file(place) as part:
                    shutil.copyfile(path, part)
