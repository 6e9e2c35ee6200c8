"""What only a run started from Python can be given: data and models in memory, callbacks, a metric of one's own."""

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
"""From labels and predictions to a number, or to numbers by name."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FromPython:
    """Data, models and functions given in Python.

    Attributes:
        staged: files and folders that were written for data and models in memory, with their place in the run folder.
        on_step: called with the loss and its terms after every step.
        on_score: called with the metrics of every scoring of the dev split.
        metric: a metric that decides which weights are best.
    """

    staged: Mapping[Path, Path] = field(default_factory=dict)
    on_step: Callback | None = None
    on_score: Callback | None = None
    metric: MetricFunction | None = None

    @property
    def functions(self) -> tuple[str, ...] | None:
        """The names of the functions that are given, for the run file, which cannot hold them; None without any."""
        return tuple(name for name in ("metric", "on_step", "on_score") if getattr(self, name) is not None) or None

    def named(self, run: Run) -> Run:
        """The run with the places in its folder of what is staged, and with the names of its functions."""
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
        """Copy what is staged to its place in the run folder, where it is not there yet."""
        for path, place in self.staged.items():
            if place.exists():
                continue
            if path.is_dir():
                with atomic_folder(place) as part:
                    shutil.copytree(path, part, dirs_exist_ok=True)
            else:
                with atomic_file(place) as part:
                    shutil.copyfile(path, part)
