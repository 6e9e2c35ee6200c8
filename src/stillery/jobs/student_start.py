"""Which weights a student starts from where a short trial chooses: `--init auto`.

The trial is the same for every method: labels and the teacher's predictions for a few dozen steps from each start, and
the loss on training examples that were left out. So two methods of one teacher, data and seed start alike.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from torch import Tensor
from transformers import PreTrainedModel

from stillery import methods
from stillery.jobs.config.run_file import read_toml
from stillery.jobs.config.settings import StudentSettings
from stillery.jobs.run_folder import write_json
from stillery.losses import Kind
from stillery.models.attention import for_any_length, unread_masks
from stillery.models.option_words import AUTO, STARTS
from stillery.models.student import Student
from stillery.recipe import Recipe, Stage
from stillery.train.distributed import from_main
from stillery.train.held_memory import held_heap
from stillery.train.settings import Training
from stillery.train.start_trial import LEAST_STEPS, SHARE, Probe, probe_steps
from stillery.train.teacher import LiveTeacher
from stillery.train.trainable import Trainable

__all__ = ["TRIED", "Chosen", "Starts", "first_student", "fixed_start", "keep_start", "kept_start"]

TRIED = ("first", "even")
"""What is tried. The last and the most important layers were never best, and yet learnt fastest in many a trial: see
docs/results/starts.md."""

_FILE = "start.json"

Made = tuple[Student, StudentSettings]


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A start, what was measured, and why it was taken, in words."""

    start: str
    why: str
    losses: Mapping[str, float]
    steps: int = 0
    seconds: float = 0.0
    auto: bool = True

    def record(self) -> dict[str, Any]:
        """As `metrics.json` has it."""
        return {"chosen": self.start, "why": self.why, "held_out_loss": dict(self.losses), "steps_each": self.steps,
                "seconds": round(self.seconds, 3)}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Starts:
    """The starts of a student: `make` builds it from one of them; `default` is that of a run too short to try any."""

    make: Callable[[str], Made]
    default: str

    def distinct(self) -> dict[str, Made]:
        """The starts that are not the same weights as one before; of a student as deep as its source all are."""
        found: dict[str, Made] = {}
        for name in TRIED:
            made = self.make(name)
            if all(made[0].layers != other.layers for other, _ in found.values()):
                found[name] = made
        return found

    def choose(
        self,
        student: PreTrainedModel,
        teacher: LiveTeacher,
        data: Trainable,
        *,
        kind: Kind,
        labelled: bool,
        training: Training,
        steps: int,
        accelerator: Accelerator,
    ) -> Chosen:
        """Try the starts for a run of so many steps, and take the one with the lowest held-out loss."""
        began, starts = time.perf_counter(), self.distinct()
        names = list(starts)
        while len(names) > 1 and not probe_steps(steps, len(names)):
            names.pop()
        if len(names) < 2:
            return self._untried(list(starts), steps)
        each = probe_steps(steps, len(names))
        probe = Probe(
            student=student, teacher=teacher, data=data, kind=kind, stage=_stage(labelled), training=training,
            accelerator=accelerator,
        )  # fmt: skip
        losses = _tried(probe, {name: partial(_weights, starts[name][0]) for name in names}, each)
        best = from_main(accelerator, min(losses, key=lambda name: losses[name]))
        said = ", ".join(f"{name} {loss:.4f}" for name, loss in sorted(losses.items(), key=lambda one: one[1]))
        left = [name for name in TRIED if name not in names and name in starts]
        untried = f"; {', '.join(left)} not tried in a run of {steps} steps" if left else ""
        why = f"lowest loss on held-out training examples after {each} steps from each: {said}{untried}"
        return Chosen(start=best, why=why, losses=losses, steps=each, seconds=time.perf_counter() - began)

    def _untried(self, starts: Sequence[str], steps: int) -> Chosen:
        start = self.default if self.default in starts else starts[0]
        if len(starts) == 1:
            return Chosen(start=start, why="every start copies the same layers", losses={})
        why = (
            f"the default, for {steps} steps are too few to try any within {SHARE:.0%} of the run ({LEAST_STEPS} steps "
            f"each at least); --init takes {', '.join(TRIED)} too"
        )
        return Chosen(start=start, why=why, losses={})


def first_student(
    make: Callable[[StudentSettings], Made], settings: StudentSettings, default: str
) -> tuple[Student, StudentSettings, Starts | None]:
    """A student to check a run with, its settings, and where its start is to be chosen the starts there are.

    All starts have the same shape, so the default will do until one is chosen.
    """
    if settings.init != AUTO:
        return *make(settings), None
    student, decided = make(replace(settings, init=default))
    return student, replace(decided, init=AUTO), Starts(lambda start: make(replace(settings, init=start)), default)


@held_heap()
@for_any_length()
@unread_masks()
def _tried(probe: Probe, starts: Mapping[str, Callable[[], Mapping[str, Tensor]]], steps: int) -> dict[str, float]:
    return probe(starts, steps)


def _stage(labelled: bool) -> Stage:
    """What every start is tried with: labels, where there are any, and the teacher's predictions."""
    return methods.build("kd", {} if labelled else {"hard_weight": 0.0}).stages[0]


def _weights(student: Student) -> Mapping[str, Tensor]:
    return student.model.state_dict()


def fixed_start(asked: StudentSettings, settings: StudentSettings, recipe: Recipe) -> Chosen | None:
    """The start of a run that has nothing to choose, and who says so; None of a checkpoint, or where one is chosen."""
    if settings.init not in STARTS or settings.init == AUTO:
        return None
    if asked.copy_layers or asked.copy_encoder_layers or asked.copy_decoder_layers:
        return None
    default = "as the method's paper has it" if recipe.init else "the default, --init chooses another"
    why = "as asked for" if asked.init is not None else default
    return Chosen(start=settings.init, why=why, losses={}, auto=False)


def keep_start(out: Path, chosen: Chosen | None) -> None:
    """Write down what a trial chose and why, for a run that goes on later."""
    if chosen is not None and chosen.auto:
        write_json(out / _FILE, chosen.record())


def kept_start(out: Path) -> Chosen | None:
    """What a run that began in this folder has chosen, if it has."""
    if not (out / "run.toml").is_file():
        return None
    start = read_toml(out / "run.toml").get("init")
    if start not in TRIED:
        return None
    try:
        kept = json.loads((out / _FILE).read_text(encoding="utf-8"))
        return Chosen(start=start, why=kept["why"], losses=kept["held_out_loss"], steps=kept["steps_each"],
                      seconds=kept["seconds"])  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return Chosen(start=start, why="as this run began", losses={})
