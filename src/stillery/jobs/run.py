"""Carry out a prepared run: open its folder, tokenise, train, finish."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from accelerate import Accelerator
from transformers import PreTrainedModel

from stillery.errors import ErrorList
from stillery.jobs import layer_similarity as similar
from stillery.jobs.advice import RunAdvice
from stillery.jobs.chosen_recipe import check_steps
from stillery.jobs.config.run_file import values_of
from stillery.jobs.config.run_paths import names_only
from stillery.jobs.config.settings import Distill, Finetune
from stillery.jobs.config.step_size import for_processes
from stillery.jobs.custom_metric import check_metric, with_metric
from stillery.jobs.failures import failures_named
from stillery.jobs.finish import finish
from stillery.jobs.footprint import reset_peak
from stillery.jobs.overwrite import remove_run
from stillery.jobs.prepared import Data, Prepared, scored_while_training, tokenised
from stillery.jobs.result import Result
from stillery.jobs.run_folder import begin, finished, is_done, read_back, write_json
from stillery.jobs.run_lock import only_run_in
from stillery.jobs.student_start import keep_start, kept_start
from stillery.lines import listed
from stillery.models.family import stack_sizes
from stillery.progress import console, detail, say
from stillery.recipe import Pairs, Stage
from stillery.train.batch_dependence import check_divided, looks_at_batches
from stillery.train.checkpoint import discard, save_projections
from stillery.train.distributed import from_main
from stillery.train.learning_rate import run_steps
from stillery.train.loop import CacheUse, Monitoring, Outcome, Sources, accelerator_for, train
from stillery.train.objective import Objective
from stillery.train.precision import choose
from stillery.train.stage_clocks import lengths_of
from stillery.train.teacher import LiveTeacher

__all__ = ["accelerator_of", "carry_out"]

End = Callable[[Path, Prepared, Data, PreTrainedModel, Outcome], Result]


def carry_out(
    prepared: Prepared, out: Path, *, resume: bool = False, overwrite: bool = False, end: End = finish
) -> Result:
    """Train and finish a run in its folder; a finished one is only read back.

    With `overwrite` an earlier run in the folder is removed once all checks have passed. `end` is called with the
    trained model.
    """
    with failures_named(prepared.run, out):
        accelerator = accelerator_of(prepared.run)
        console.quiet = console.quiet or not accelerator.is_main_process
        with only_run_in(out, accelerator, needed=overwrite or not finished(out)):
            return _alone(prepared, out, accelerator, resume=resume, overwrite=overwrite, end=end)


def _alone(
    prepared: Prepared, out: Path, accelerator: Accelerator, *, resume: bool, overwrite: bool, end: End
) -> Result:
    """Train and finish a run in a folder that is kept for it."""
    if prepared.starts is not None and not overwrite:
        begun = kept_start(out)
        prepared = prepared if begun is None else prepared.started(begun)
    prepared = replace(prepared, run=for_processes(prepared.run, accelerator.num_processes))
    by_batch = looks_at_batches(prepared.stages)
    if not overwrite and is_done(out, prepared.run, resume=resume, by_batch=by_batch):
        say(f"{out}: this run is finished already; nothing to do")
        if accelerator.is_main_process:
            # The process may have been killed between its last output and its cleanup.
            discard(out)
        return read_back(out)
    _check_processes(prepared, accelerator.num_processes)
    for line in prepared.summary():
        say(line)
    for line in prepared.details():
        detail(line)
    data = tokenised(prepared)
    errors = ErrorList()
    stored = _stored(prepared.run, prepared.stages, errors)
    check_steps(prepared.stages, prepared.run.training, len(data.train), errors, processes=accelerator.num_processes)
    if prepared.from_python.metric is not None:
        with errors.catch():
            check_metric(prepared.kind, data.splits["dev"][0])
    errors.raise_any()
    prepared = _with_start(prepared, data, accelerator)
    # Layers of the initial student are compared: a resumed run has done so already.
    before = similar.kept(out) if resume else None
    prepared, alike, pairs = _with_similar(prepared, before, accelerator)
    _say_stages(prepared, data, accelerator)
    objective = _objective(prepared, data)
    # Nothing is written before everything is checked, nor before every process has checked the folder.
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        if overwrite:
            remove_run(out)
        prepared.from_python.keep()
        begin(out, prepared.run)
        if prepared.conditions:
            write_json(out / "conditions.json", prepared.conditions)
        keep_start(out, prepared.start)
        if alike is not None and before is None:
            similar.keep(out, alike, pairs)
    accelerator.wait_for_everyone()
    reset_peak()
    outcome = _trained(prepared, data, objective, out, accelerator, resume=resume, stored=stored)
    if outcome.stored is not None:
        prepared = replace(prepared, run=_with_stored(prepared.run, outcome.stored))
    result = None
    if accelerator.is_main_process:
        save_projections(out, objective)
        result = end(out, prepared, data, objective.student, outcome)
    accelerator.wait_for_everyone()
    return result or read_back(out)


def accelerator_of(run: Finetune | Distill) -> Accelerator:
    """Return this process's accelerator, in the run's precision, by default the best for the device."""
    accelerator = accelerator_for("fp32")
    precision = from_main(accelerator, choose(run.training.precision, accelerator.device.type))
    return accelerator if precision == "fp32" else accelerator_for(precision)


def _objective(prepared: Prepared, data: Data) -> Objective:
    teacher, other = prepared.teacher, prepared.layers_teacher
    return Objective(
        prepared.model,
        prepared.stages,
        teacher=stack_sizes(teacher.model.config) if teacher else None,
        kind=prepared.kind.outputs(prepared.read),
        seed=prepared.run.training.seed,
        examples=len(data.train),
        supplementary=stack_sizes(other.model.config) if other else None,
        drop_start=prepared.drop_start,
        class_weights=prepared.kind.class_weights(prepared.read, prepared.run.training),
    )


def _trained(
    prepared: Prepared,
    data: Data,
    objective: Objective,
    out: Path,
    accelerator: Accelerator,
    *,
    resume: bool,
    stored: list[int] | None,
) -> Outcome:
    run, teacher, other = prepared.run, prepared.teacher, prepared.layers_teacher
    sources = Sources(
        data=data.train,
        teacher=LiveTeacher(teacher.model, prepared.drop_start) if teacher else None,
        supplementary=data.texts,
        supplementary_teacher=LiveTeacher(other.model, prepared.drop_start) if other else None,
        on_policy=prepared.policy,
    )
    cache = None
    if isinstance(run, Distill):
        cache = CacheUse(
            settings=run.storing,
            stages=stored,
            on_decision=lambda stages: begin(out, _with_stored(run, stages)),
        )
    given = prepared.from_python
    scored = scored_while_training(prepared, data)
    score = with_metric(given.metric, prepared, scored, prepared.kind.scorer(prepared, scored))
    monitoring = Monitoring(
        score=score, advice=RunAdvice(run), about=names_only(values_of(run)), on_step=given.on_step,
        on_score=given.on_score,
    )  # fmt: skip
    return train(
        objective,
        sources,
        run.training,
        accelerator=accelerator,
        folder=out,
        resume=resume,
        cache=cache,
        monitoring=monitoring,
    )


def _check_processes(prepared: Prepared, processes: int) -> None:
    """Raise UserError for features that several processes do not support, or that they would change."""
    errors = ErrorList()
    if prepared.policy is not None and processes > 1:
        errors.add("--on-policy: texts of the student's own are written by one process; start one")
    with errors.catch():
        check_divided(prepared.stages, prepared.run.training, processes)
    errors.raise_any()


def _stored(run: Finetune | Distill, stages: tuple[Stage, ...], errors: ErrorList) -> list[int] | None:
    """Return the stages, counted from 0, that read the teacher cache according to the run file; None if not decided."""
    if not isinstance(run, Distill) or run.stored_stages is None:
        return None
    for number in run.stored_stages:
        if number > len(stages):
            errors.add(f"stored_stages names stage {number}, and the run has {len(stages)}: leave the line out")
    return [number - 1 for number in run.stored_stages]


def _with_stored(run: Finetune | Distill, stages: Sequence[int]) -> Finetune | Distill:
    """Return the run with the decided stages that read the teacher cache."""
    assert isinstance(run, Distill)
    return replace(run, stored_stages=tuple(stage + 1 for stage in stages))


def _steps(prepared: Prepared, data: Data, accelerator: Accelerator) -> int:
    """Return the number of optimiser steps of the run, over all its stages."""
    training = prepared.run.training
    window = training.batch_size * training.accumulate * accelerator.num_processes
    return run_steps(training.epochs, len(data.train), window, training.max_steps)


def _with_start(prepared: Prepared, data: Data, accelerator: Accelerator) -> Prepared:
    """Choose the student's initialisation by a short trial, where the run asks for one (`--init auto`)."""
    if prepared.starts is None:
        return prepared
    assert prepared.teacher is not None
    run = prepared.run
    chosen = prepared.starts.choose(
        prepared.model,
        LiveTeacher(prepared.teacher.model, prepared.drop_start),
        data.train,
        kind=prepared.kind.outputs(prepared.read),
        labelled=not run.data.unlabelled,
        training=run.training,
        steps=_steps(prepared, data, accelerator),
        accelerator=accelerator,
    )
    prepared = prepared.started(chosen)
    for line in prepared.said_origin():
        detail(line)
    return prepared


def _with_similar(
    prepared: Prepared, before: similar.Alike | None, accelerator: Accelerator
) -> tuple[Prepared, similar.Alike | None, Mapping[str, Pairs]]:
    """Decide layer pairs by similarity where a pairing needs it; return the run, the similarity and the pairs."""
    asked = similar.asking(prepared.stages)
    if not asked:
        return prepared, None, {}
    assert prepared.calibration is not None
    alike = before
    if before is None and accelerator.is_main_process:
        alike = similar.measured(prepared.stages, prepared.model, prepared.teachers, prepared.calibration)
    alike = similar.agreed(accelerator, alike)
    prepared = replace(prepared, stages=similar.decided(prepared.stages, alike))
    seed = prepared.run.training.seed
    pairs = similar.pairs_said(asked, prepared.stages, prepared.model, prepared.teachers, seed)
    for name, met in pairs.items():
        how = "as this run began" if before is not None else "by CKA similarity"
        detail(f"{name}: student-teacher layers {listed((f'{i}-{j}' for i, j in met), 24)} ({how})")
    return prepared, alike, pairs


def _say_stages(prepared: Prepared, data: Data, accelerator: Accelerator) -> None:
    """Report the number of steps of each stage, if there are several."""
    if len(prepared.stages) > 1:
        lengths = lengths_of(prepared.stages, _steps(prepared, data, accelerator))
        named = zip(prepared.stages, lengths, strict=True)
        detail(f"stages: {', '.join(f'{stage.name} {length} steps' for stage, length in named)}")
