"""`--init auto`: choose a student's initialisation by a short trial.

The trial is the same for every method: train from each start on labels and the teacher's predictions for a few dozen
steps, and compare the loss on held-out training examples. So two methods with the same teacher, data and seed have the
same initialisation.
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

from stillery import declare, methods
from stillery.jobs.config.run_file import read_toml
from stillery.jobs.config.settings import StudentSettings
from stillery.jobs.run_folder import write_json
from stillery.losses import Kind
from stillery.models.attention import for_any_length, unread_masks
from stillery.models.option_words import AUTO, STARTS
from stillery.models.student import Student
from stillery.parts import load
from stillery.parts.embedding import USUAL
from stillery.recipe import Prediction, Recipe, Stage
from stillery.train.distributed import from_main
from stillery.train.held_memory import held_heap
from stillery.train.settings import Training
from stillery.train.start_trial import LEAST_STEPS, SHARE, Probe, probe_steps
from stillery.train.teacher import LiveTeacher
from stillery.train.trainable import Trainable

__all__ = [
    "TRIED",
    "Chosen",
    "Starts",
    "first_student",
    "fixed_start",
    "keep_start",
    "kept_start",
    "trial_stage",
    "try_starts",
]

TRIED = ("first", "even")
"""The starts that are tried. The last and the most important layers were never best, yet learnt fastest in many
trials: see docs/results/starts.md."""

_FILE = "start.json"

Made = tuple[Student, StudentSettings]


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A chosen initialisation, the measured losses, and the reason in words."""

    start: str
    why: str
    losses: Mapping[str, float]
    steps: int = 0
    seconds: float = 0.0
    auto: bool = True

    def record(self) -> dict[str, Any]:
        """Return the choice as written to `metrics.json`."""
        return {"chosen": self.start, "why": self.why, "held_out_loss": dict(self.losses), "steps_each": self.steps,
                "seconds": round(self.seconds, 3)}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Starts:
    """The possible initialisations of a student: `make` builds it; `default` is used in a run too short for a trial."""

    make: Callable[[str], Made]
    default: str

    def distinct(self) -> dict[str, Made]:
        """Return the starts that copy different layers; for a student as deep as its source that is only one."""
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
        """Try the starts for a run of `steps` steps, and return the one with the lowest held-out loss."""
        began, starts = time.perf_counter(), self.distinct()
        names = list(starts)
        while len(names) > 1 and not probe_steps(steps, len(names)):
            names.pop()
        if len(names) < 2:
            return self._untried(list(starts), steps)
        each = probe_steps(steps, len(names))
        probe = Probe(
            student=student, teacher=teacher, data=data, kind=kind, stage=trial_stage(kind, labelled),
            training=training, accelerator=accelerator,
        )  # fmt: skip
        losses = try_starts(probe, {name: starts[name][0] for name in names}, each)
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
    """Make the student to check a run with; return it, its settings and, with `--init auto`, the starts to try.

    All starts have the same shape, so the default is used until one is chosen.
    """
    if settings.init != AUTO:
        return *make(settings), None
    student, decided = make(replace(settings, init=default))
    return student, replace(decided, init=AUTO), Starts(lambda start: make(replace(settings, init=start)), default)


@held_heap()
@for_any_length()
@unread_masks()
def try_starts(probe: Probe, starts: Mapping[str, Student], steps: int) -> dict[str, float]:
    """Return the held-out loss of students with these starts after a number of steps each."""
    return probe({name: partial(_weights, student) for name, student in starts.items()}, steps)


def trial_stage(kind: Kind, labelled: bool) -> Stage:
    """Return the stage of the trial: labels, where there are any, and the teacher's predictions or embeddings."""
    if kind == "embedding":
        load()
        return Stage(prediction=Prediction(divergence=declare.find("divergence", USUAL).part), hard_weight=0.0)
    return methods.build("kd", {} if labelled else {"hard_weight": 0.0}).stages[0]


def _weights(student: Student) -> Mapping[str, Tensor]:
    return student.model.state_dict()


def fixed_start(asked: StudentSettings, settings: StudentSettings, recipe: Recipe) -> Chosen | None:
    """Return a run's fixed start and its reason; None for a checkpoint, layers given one by one, or `--init auto`."""
    if settings.init not in STARTS or settings.init == AUTO:
        return None
    if asked.copy_layers or asked.copy_encoder_layers or asked.copy_decoder_layers:
        return None
    default = "the default, --init chooses another"
    if recipe.init:
        default = "measured to be best for the method" if recipe.init_measured else "as the method's paper has it"
    why = "as asked for" if asked.init is not None else default
    return Chosen(start=settings.init, why=why, losses={}, auto=False)


def keep_start(out: Path, chosen: Chosen | None) -> None:
    """Save the start chosen by a trial and the reason, for resuming the run."""
    if chosen is not None and chosen.auto:
        write_json(out / _FILE, chosen.record())


def kept_start(out: Path) -> Chosen | None:
    """Read the start chosen by an unfinished or finished run in this folder; None if there is none."""
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
