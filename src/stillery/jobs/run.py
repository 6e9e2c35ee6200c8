"""Carry out a prepared run: open its folder, tokenise, train, finish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from accelerate import Accelerator
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from stillery.errors import ErrorList, UserError
from stillery.jobs import layer_similarity as similar
from stillery.jobs.advice import RunAdvice
from stillery.jobs.calibration import Calibration
from stillery.jobs.config.settings import Distill, Finetune
from stillery.jobs.config.step_size import for_processes
from stillery.jobs.finish import Result
from stillery.jobs.recipe import check_steps
from stillery.jobs.run_folder import begin, is_done, read_metrics, write_json
from stillery.jobs.student_start import TRIED, Chosen, Starts, keep_start, kept_start
from stillery.losses import Kind
from stillery.models.family import sizes, stack_sizes, stacks_of
from stillery.models.load import Loaded
from stillery.models.projected_head import exported_parameters
from stillery.progress import console, say
from stillery.recipe import Pairs, Stage
from stillery.train.batch_dependence import check_divided, looks_at_batches
from stillery.train.checkpoint import discard
from stillery.train.data import Trainable
from stillery.train.distributed import from_main
from stillery.train.log import need_tensorboard
from stillery.train.loop import CacheUse, Monitoring, Outcome, Sources, accelerator_for, train
from stillery.train.objective import Objective
from stillery.train.on_policy import OnPolicy
from stillery.train.precision import choose
from stillery.train.schedule import run_steps
from stillery.train.settings import Training
from stillery.train.stage_clocks import lengths_of
from stillery.train.teacher import LiveTeacher

__all__ = ["Prepared", "Subject", "Work", "carry_out", "check_fingerprints", "check_training"]


class Work(Protocol):
    """The data of a run as tokens, how a model is scored on it, and how it is finished."""

    @property
    def data(self) -> Trainable:
        """What is trained on."""

    @property
    def supplementary(self) -> Trainable | None:
        """What the stage of layers is trained on instead, if anything."""

    def of(self, prepared: Prepared) -> Work:
        """The same data, of a run whose start is decided."""

    def score(self, model: PreTrainedModel) -> Mapping[str, float]:
        """The model's metrics on the dev part, the one that decides first."""

    def finish(self, out: Path, model: PreTrainedModel, outcome: Outcome) -> Result:
        """Score the trained model and write everything a run folder holds."""


class Subject(Protocol):
    """What a run is about: sorting texts into classes, or writing text."""

    @property
    def kind(self) -> Kind:
        """What the model's outputs are."""

    def summary(self) -> list[str]:
        """The data, in words."""

    def work(self, prepared: Prepared) -> Work:
        """Tokenise."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A run with everything loaded and checked, ready to train.

    Where its student's start is still to be chosen, `starts` are those there are, and the model is any of them; `start`
    is what was chosen.
    """

    run: Finetune | Distill
    subject: Subject
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    teacher: Loaded | None
    stages: tuple[Stage, ...]
    origin: tuple[str, ...]
    paper: str | None = None
    pairs: Mapping[str, Pairs]
    ild_teacher: Loaded | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    policy: OnPolicy | None = None
    drop_start: bool = False
    notes: tuple[str, ...] = ()
    starts: Starts | None = None
    start: Chosen | None = None
    calibration: Calibration | None = None

    @property
    def taught_by(self) -> dict[str, Loaded]:
        """The teachers of its stages."""
        teachers = {"task": self.teacher, "supplementary": self.ild_teacher or self.teacher}
        return {name: one for name, one in teachers.items() if one is not None}

    @property
    def configs(self) -> list[PreTrainedConfig]:
        """Those of every model that reads the texts."""
        teachers = [one.model.config for one in (self.teacher, self.ild_teacher) if one is not None]
        return [self.model.config, *teachers]

    def summary(self) -> list[str]:
        """What is about to run, in words."""
        config, what = self.model.config, "student" if self.teacher else "model"
        stacks = stacks_of(config)
        layers = " + ".join(str(sizes(config, stack).layers) for stack in stacks)
        lines = [
            *self.notes,
            *self.subject.summary(),
            f"{what}: {config.model_type}, {layers} layers x {sizes(config).width}, "
            f"{exported_parameters(self.model):,} parameters",
            *(self._origin(what) if self.starts is None else [_TO_BE_TRIED]),
        ]
        if self.ild_teacher is not None:
            lines.append(f"teacher of the stage of layers: {self.ild_teacher.name}")
        for name, pairs in self.pairs.items():
            lines.append(f"{name}: student-teacher layers {', '.join(f'{i}-{j}' for i, j in pairs)}")
        return lines

    def _origin(self, what: str = "student") -> list[str]:
        """Where the weights come from, and why, in words."""
        why = [] if self.start is None else [f"{what}: start {self.start.start}: {self.start.why}"]
        return [*why, *(f"{what}: {line}" for line in self.origin)]

    def started(self, chosen: Chosen) -> Prepared:
        """The run with its start decided."""
        assert self.starts is not None and isinstance(self.run, Distill)
        student, settings = self.starts.make(chosen.start)
        depth = settings.layers or self.run.student.layers
        run = replace(self.run, student=replace(settings, layers=depth))
        return replace(self, run=run, model=student.model, origin=student.origin, starts=None, start=chosen)


_TO_BE_TRIED = f"student: start to be chosen by a short trial of {', '.join(TRIED)} (--init auto)"


def check_training(training: Training, errors: ErrorList) -> None:
    """Note what the training options need and this machine lacks."""
    if training.tensorboard:
        with errors.catch():
            need_tensorboard()


def check_fingerprints(wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Refuse to repeat a run on other data or another model than the run file was written for."""
    changed = [name for name, value in wanted.items() if found.get(name) != value]
    if changed:
        raise UserError(
            f"the {' and the '.join(changed)} changed since this run file was written; "
            "remove its [fingerprints] to run anyway"
        )


def carry_out(prepared: Prepared, out: Path, *, resume: bool = False) -> Result:
    """Train and finish a run in its folder; a finished one is only read back."""
    run, teacher = prepared.run, prepared.teacher
    accelerator = accelerator_for("fp32")
    precision = from_main(accelerator, choose(run.training.precision, accelerator.device.type))
    if precision != "fp32":
        accelerator = accelerator_for(precision)
    console.quiet = console.quiet or not accelerator.is_main_process
    if prepared.starts is not None:
        begun = kept_start(out)
        prepared = prepared if begun is None else prepared.started(begun)
        run = prepared.run
    run = for_processes(run, accelerator.num_processes)
    prepared = replace(prepared, run=run)
    if is_done(out, run, resume=resume, by_batch=looks_at_batches(prepared.stages)):
        say(f"{out}: this run is finished already; nothing to do")
        if accelerator.is_main_process:
            # The process may have been killed after its last word and before it cleared away.
            discard(out)
        return Result(out=out, student=out / "student", metrics=read_metrics(out))
    _check_processes(prepared, accelerator.num_processes)
    for line in prepared.summary():
        say(line)

    work = prepared.subject.work(prepared)
    errors = ErrorList()
    stored = _stored(run, prepared.stages, errors)
    check_steps(prepared.stages, run.training, len(work.data), errors, processes=accelerator.num_processes)
    errors.raise_any()
    prepared, work = _with_start(prepared, work, accelerator)
    # Layers are compared as the student starts: a run that goes on has compared them already.
    before = similar.kept(out) if resume else None
    prepared, alike, pairs = _with_similar(prepared, before, accelerator)
    run = prepared.run
    _say_stages(prepared, work, accelerator)
    objective = Objective(
        prepared.model,
        prepared.stages,
        teacher=stack_sizes(teacher.model.config) if teacher else None,
        kind=prepared.subject.kind,
        seed=run.training.seed,
        examples=len(work.data),
        supplementary=stack_sizes(prepared.ild_teacher.model.config) if prepared.ild_teacher else None,
        drop_start=prepared.drop_start,
    )
    # Nothing is written before everything is checked, and not before every process has looked at the folder.
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        begin(out, run)
        if prepared.conditions:
            write_json(out / "conditions.json", prepared.conditions)
        keep_start(out, prepared.start)
        if alike is not None and before is None:
            similar.keep(out, alike, pairs)
    accelerator.wait_for_everyone()
    sources = Sources(
        data=work.data,
        teacher=LiveTeacher(teacher.model, prepared.drop_start) if teacher else None,
        supplementary=work.supplementary,
        supplementary_teacher=(
            LiveTeacher(prepared.ild_teacher.model, prepared.drop_start) if prepared.ild_teacher else None
        ),
        on_policy=prepared.policy,
    )
    cache = None
    if isinstance(run, Distill):
        cache = CacheUse(
            settings=run.storing,
            stages=stored,
            on_decision=lambda stages: begin(out, _with_stored(run, stages)),
        )
    outcome = train(
        objective,
        sources,
        run.training,
        accelerator=accelerator,
        folder=out,
        resume=resume,
        cache=cache,
        monitoring=Monitoring(score=work.score, advice=RunAdvice(run)),
    )
    if outcome.stored is not None:
        work = work.of(replace(prepared, run=_with_stored(run, outcome.stored)))
    result = None
    if accelerator.is_main_process:
        result = work.finish(out, objective.student, outcome)
    accelerator.wait_for_everyone()
    return result or Result(out=out, student=out / "student", metrics=read_metrics(out))


def _check_processes(prepared: Prepared, processes: int) -> None:
    """Refuse what several processes cannot do, or would do otherwise than one."""
    errors = ErrorList()
    if prepared.policy is not None and processes > 1:
        errors.add("--on-policy: texts of the student's own are written by one process; start one")
    with errors.catch():
        check_divided(prepared.stages, prepared.run.training, processes)
    errors.raise_any()


def _stored(run: Finetune | Distill, stages: tuple[Stage, ...], errors: ErrorList) -> list[int] | None:
    """The stages, counted from 0, that read the teacher store in the run that this one repeats, if it repeats one."""
    if not isinstance(run, Distill) or run.stored_stages is None:
        return None
    for number in run.stored_stages:
        if number > len(stages):
            errors.add(f"stored_stages names stage {number}, and the run has {len(stages)}: leave the line out")
    return [number - 1 for number in run.stored_stages]


def _with_stored(run: Finetune | Distill, stages: Sequence[int]) -> Finetune | Distill:
    """The run with what was decided about its teacher store."""
    assert isinstance(run, Distill)
    return replace(run, stored_stages=tuple(stage + 1 for stage in stages))


def _steps(prepared: Prepared, work: Work, accelerator: Accelerator) -> int:
    """Optimiser steps of the run, over all its stages."""
    training = prepared.run.training
    window = training.batch_size * training.accumulate * accelerator.num_processes
    return run_steps(training.epochs, len(work.data), window, training.max_steps)


def _with_start(prepared: Prepared, work: Work, accelerator: Accelerator) -> tuple[Prepared, Work]:
    """The run with its student's start chosen, where that is left to a trial."""
    if prepared.starts is None:
        return prepared, work
    assert prepared.teacher is not None
    run = prepared.run
    chosen = prepared.starts.choose(
        prepared.model,
        LiveTeacher(prepared.teacher.model, prepared.drop_start),
        work.data,
        kind=prepared.subject.kind,
        labelled=not run.data.unlabelled,
        training=run.training,
        steps=_steps(prepared, work, accelerator),
        accelerator=accelerator,
    )
    prepared = prepared.started(chosen)
    for line in prepared._origin():
        say(line)
    return prepared, work.of(prepared)


def _with_similar(
    prepared: Prepared, before: similar.Alike | None, accelerator: Accelerator
) -> tuple[Prepared, similar.Alike | None, Mapping[str, Pairs]]:
    """The run with the layers that meet decided, where that is left to how alike they are; what was measured; pairs."""
    asked = similar.asking(prepared.stages)
    if not asked:
        return prepared, None, {}
    assert prepared.calibration is not None
    alike = before
    if before is None and accelerator.is_main_process:
        alike = similar.measured(prepared.stages, prepared.model, prepared.taught_by, prepared.calibration)
    alike = similar.agreed(accelerator, alike)
    prepared = replace(prepared, stages=similar.decided(prepared.stages, alike))
    seed = prepared.run.training.seed
    pairs = similar.pairs_said(asked, prepared.stages, prepared.model, prepared.taught_by, seed)
    for name, met in pairs.items():
        how = "as this run began" if before is not None else "by how alike they are"
        say(f"{name}: student-teacher layers {', '.join(f'{i}-{j}' for i, j in met)} ({how})")
    return prepared, alike, pairs


def _say_stages(prepared: Prepared, work: Work, accelerator: Accelerator) -> None:
    """Say how many steps each of several stages has."""
    if len(prepared.stages) > 1:
        lengths = lengths_of(prepared.stages, _steps(prepared, work, accelerator))
        named = zip(prepared.stages, lengths, strict=True)
        say(f"stages: {', '.join(f'{stage.name} {length} steps' for stage, length in named)}")
