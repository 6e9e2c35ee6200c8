"""A short trial of other starts than the one a run had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stillery.errors import UserError
from stillery.jobs.config.settings import Distill, Finetune
from stillery.jobs.diagnosis.training_examples import prepare
from stillery.jobs.prepared import tokenised
from stillery.jobs.run import accelerator_of
from stillery.jobs.student_start import TRIED, trial_stage, try_starts
from stillery.models.option_words import AUTO, LAYER_CHOICES
from stillery.models.student import Student
from stillery.progress import worded
from stillery.train.start_trial import MOST_STEPS, Probe
from stillery.train.teacher import LiveTeacher

__all__ = ["Trial", "try_other_starts"]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The loss on held-out training examples after a few steps from each start; `own` is the run's."""

    own: str
    losses: Mapping[str, float]
    steps: int


def try_other_starts(folder: Path, run: Distill | Finetune) -> Trial | str:
    """Train students from the run's own start and from others for a few steps each; return why not, where not.

    It is the trial of `--init auto`: labels and the teacher's predictions, the same batches for all starts.
    """
    if not isinstance(run, Distill):
        return "a fine-tuned model starts as its base model"
    student, own = run.student, run.student.init
    chosen = (student.copy_layers, student.copy_encoder_layers, student.copy_decoder_layers)
    # The layers of `important` are written to the run file, so that they are not measured again.
    if own not in (*LAYER_CHOICES, "random") or (any(chosen) and own != "important"):
        return "the student's start is a checkpoint, or layers chosen one by one"
    try:
        prepared = prepare(folder, run, {"init": AUTO})
    except UserError as error:
        return error.lines[0]
    starts = prepared.starts
    if starts is None or prepared.teacher is None:
        return "the student of this method has one start"
    made: dict[str, Student] = {}
    for name in dict.fromkeys([own, *TRIED]):
        candidate = starts.make(name)[0]
        if all(candidate.layers != other.layers for other in made.values()):
            made[name] = candidate
    if len(made) < 2:
        return "every start copies the same layers"
    with worded(lambda line: None):
        data = tokenised(prepared).train
    kind = prepared.kind.outputs(prepared.read)
    probe = Probe(
        student=prepared.model, teacher=LiveTeacher(prepared.teacher.model, prepared.drop_start), data=data,
        kind=kind, stage=trial_stage(kind, not run.data.unlabelled), training=prepared.run.training,
        accelerator=accelerator_of(prepared.run),
    )  # fmt: skip
    return Trial(own=own, losses=try_starts(probe, made, MOST_STEPS), steps=MOST_STEPS)
