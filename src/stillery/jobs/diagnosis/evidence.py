"""What a diagnosis knows of a run: what its folder holds, and what was measured again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillery.errors import UserError
from stillery.evaluation.recorded import Recorded
from stillery.jobs.advice import RunAdvice
from stillery.jobs.comparison.models import read_run, run_folder
from stillery.jobs.config.run_file import read_toml
from stillery.jobs.config.run_paths import ELSEWHERE
from stillery.jobs.config.settings import Distill, Finetune, resolve
from stillery.jobs.diagnosis.levels import Levels, levels
from stillery.train.log import read_events

if TYPE_CHECKING:
    from stillery.jobs.diagnosis.starts import Trial
    from stillery.jobs.diagnosis.training_examples import Examined

__all__ = ["DIFFERENCE", "NOT_MEASURED", "Evidence", "StageLog", "evidence_of"]

DIFFERENCE = 5.0
"""The difference of two models, in points of the metric, that a split has to show unless another one is asked for."""

NOT_MEASURED = "not measured at the end of a run"


@dataclass(frozen=True, kw_only=True)
class StageLog:
    """The log of a stage of training: its steps, its losses, and what its guards measured."""

    name: str
    number: int
    steps: int
    losses: Sequence[Mapping[str, Any]]
    guards: Sequence[Mapping[str, Any]]

    @property
    def terms(self) -> list[str]:
        """The names of its loss terms."""
        return list(self.losses[-1]["terms"]) if self.losses else []


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Everything that the checks of a diagnosis read.

    Attributes:
        folder: the run folder.
        run: the settings of the run; paths that are not known here are empty.
        metrics: the contents of `metrics.json`.
        log: the events of `log.jsonl`.
        recorded: the predictions of the run.
        difference: the difference that the split should be able to show, in points.
        examined: what was measured on training examples, or why nothing was.
        trial: the trial of other starts, or why there was none.
    """

    folder: Path
    run: Distill | Finetune
    metrics: Mapping[str, Any]
    log: Sequence[Mapping[str, Any]]
    recorded: Recorded
    difference: float = DIFFERENCE
    examined: Examined | str = NOT_MEASURED
    trial: Trial | str = NOT_MEASURED

    @cached_property
    def levels(self) -> Levels:
        """The scores of student, teacher and constant answer."""
        return levels(self.metrics, self.recorded)

    @cached_property
    def stages(self) -> list[StageLog]:
        """The stages of training, in order, as far as the log has them."""
        losses: dict[str, list[Mapping[str, Any]]] = {}
        guards: dict[str, list[Mapping[str, Any]]] = {}
        for event in self.log:
            kind = {"train": losses, "guards": guards}.get(event.get("event", ""))
            if kind is not None:
                kind.setdefault(event["stage"], []).append(event)
        # The first and the last step of every stage are logged.
        return [
            StageLog(
                name=name, number=number, steps=some[-1]["step"] - some[0]["step"] + 1, losses=some,
                guards=guards.get(name, []),
            )
            for number, (name, some) in enumerate(losses.items())
        ]  # fmt: skip

    @cached_property
    def advice(self) -> RunAdvice:
        """Remedies in terms of the run's options."""
        return RunAdvice(self.run)

    def warnings(self, guard: str) -> list[Mapping[str, Any]]:
        """The warnings of a guard while the run was trained."""
        return [one for one in self.metrics.get("warnings", []) if one.get("guard") == guard]

    @property
    def steps(self) -> int:
        """The optimiser steps of the run."""
        return int(self.metrics.get("training", {}).get("steps", 0))

    def longer(self, times: float = 2) -> str:
        """The option that makes the run longer."""
        training = self.run.training
        if training.max_steps is not None and self.steps >= training.max_steps:
            return f"--max-steps {round(times * training.max_steps)} (now {training.max_steps})"
        return f"--epochs {max(round(times * training.epochs), training.epochs + 1)} (now {training.epochs})"


def evidence_of(place: str, *, difference: float = DIFFERENCE) -> Evidence:
    """Read everything that the folder of a finished run holds; no model is loaded."""
    path = Path(place).expanduser()
    if (path / "plan.toml").is_file() and (path / "cells").is_dir():
        cell = next((one.name for one in sorted((path / "cells").iterdir()) if one.is_dir()), "NAME")
        raise UserError(f"{place} is a study: give one of its runs, such as {path / 'cells' / cell}")
    folder = run_folder(place)
    if not (folder / "run.toml").is_file():
        raise UserError(f"{folder}: has no run.toml, so its settings are not known; copy the run again")
    model = read_run(str(folder))
    if not model.scores["metrics"]:
        raise UserError(f"{folder / 'metrics.json'}: has no scores to examine")
    return Evidence(
        folder=folder, run=_settings(folder), metrics=model.scores, log=_events(folder), recorded=model.recorded,
        difference=difference,
    )  # fmt: skip


def _settings(folder: Path) -> Distill | Finetune:
    """Return the settings of a run; those that are not in its file are at their defaults."""
    values = read_toml(folder / "run.toml")
    values.pop(ELSEWHERE, None)
    return resolve(Finetune, values).run if values.get("job") == "finetune" else resolve(Distill, values).run


def _events(folder: Path) -> list[dict[str, Any]]:
    """Return the events of the log; without the line that a killed process was writing."""
    file = folder / "log.jsonl"
    try:
        return read_events(file)[0]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror or error}); copy the run again") from None
