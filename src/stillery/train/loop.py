"""The training loop, for every method: read it top to bottom.

A step of the optimiser takes a *window* of examples, cut into micro-batches over accumulation and processes; the loss
does not depend on how it was cut. Everything random or scheduled is a function of the step, so a run that is killed
and goes on ends with the same bits as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState
from torch import nn
from transformers import PreTrainedModel

from stillery.models.attention import for_any_length, unread_masks
from stillery.progress import Bar, bar, say
from stillery.similarity_pairing import check_measured
from stillery.train import checkpoint
from stillery.train.checkpoint import Progress
from stillery.train.cuda.graph_step import graphs_for
from stillery.train.cuda.stream import own_stream
from stillery.train.data import TextData, Trainable, TrainingData
from stillery.train.deferred_losses import Telling
from stillery.train.guards import Advice, Guards, Plain, Warned
from stillery.train.heap import held_heap
from stillery.train.log import RunLog
from stillery.train.objective import Objective
from stillery.train.on_policy import OnPolicy, on_policy, writes_itself
from stillery.train.optimiser import adamw, set_rate
from stillery.train.prefetch import ahead
from stillery.train.schedule import learning_rate, run_steps
from stillery.train.settings import Storing, Training
from stillery.train.stage_clocks import clock_at, lengths_of, lessons_of
from stillery.train.step import Step
from stillery.train.step_inputs import Preparing
from stillery.train.step_losses import note
from stillery.train.teacher import LiveTeacher, Teacher
from stillery.train.teacher_cache.offload import idle_teachers_away
from stillery.train.teacher_cache.stages import stage_teachers

__all__ = ["Outcome", "Score", "TextData", "Trainable", "TrainingData", "accelerator_for", "train"]

AHEAD = 4
"""Steps whose examples are prepared while a GPU is busy with the ones before."""

Score = Callable[[PreTrainedModel], Mapping[str, float]]
"""Scores the student on the dev part; the first metric decides which weights are best."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a training run came to; `best` and `last` are the dev part's metrics at those scorings.

    Of the `seconds`, `store_seconds` went into choosing and filling the teacher store; `store_choices` say how, and
    `stored` which stages read it, None where none was to. The `warnings` are what guards found; None where there were
    none.
    """

    steps: int
    kept_step: int
    seconds: float
    stopped_early: bool
    best: Mapping[str, float] | None = None
    last: Mapping[str, float] | None = None
    store_seconds: float = 0.0
    store_choices: Sequence[Mapping[str, Any]] = ()
    stored: Sequence[int] | None = None
    warnings: Sequence[Mapping[str, Any]] | None = None


def accelerator_for(precision: str) -> Accelerator:
    """The device or devices to train on; a precision of an earlier run in this process does not stick."""
    AcceleratorState._reset_state(reset_partial_state=False)
    # A stage of layers leaves the classifier, and other stages' projections, without a gradient.
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)
    return Accelerator(mixed_precision={"fp32": "no"}.get(precision, precision), kwargs_handlers=[unused])


@held_heap()
@for_any_length()
@unread_masks()
def train(
    objective: Objective,
    data: Trainable,
    settings: Training,
    *,
    accelerator: Accelerator,
    teacher: LiveTeacher | None,
    score: Score | None,
    folder: Path,
    resume: bool = False,
    supplementary: Trainable | None = None,
    supplementary_teacher: LiveTeacher | None = None,
    policy: OnPolicy | None = None,
    storing: Storing | None = None,
    stored: Collection[int] | None = None,
    keep_stored: Callable[[Sequence[int]], None] = lambda stages: None,
    advice: Advice | None = None,
    about: Mapping[str, Any] | None = None,
) -> Outcome:
    """Train the objective's student in place; the run's log and checkpoints go to `folder`.

    The number of steps is that of `epochs` over `data`; stages on supplementary texts take their share of it. With a
    `policy` the student writes the targets of some steps itself. `storing` says whether what the teacher shows may be
    read from disk; without it, it never is. `stored` are the stages that read it in the run that this one repeats;
    `keep_stored` is told before the first step which do. `advice` ends the lines of guards;
    `about` is what trackers are told of the run.
    """
    check_measured(objective.stages)
    window = settings.batch_size * settings.accumulate * accelerator.num_processes
    total = run_steps(settings.epochs, len(data), window, settings.max_steps)
    lengths = lengths_of(objective.stages, total)

    progress = checkpoint.read_begun(folder) if resume else Progress()
    if resume and checkpoint.has_checkpoint(folder):
        progress = checkpoint.read_progress(folder)
        checkpoint.restore_weights(folder, objective)
    resumed_at = progress.step if progress.step else None
    main = accelerator.is_main_process
    log: RunLog | None = None
    if main:
        log = RunLog(
            folder, accelerator=accelerator, trackers=settings.trackers, about=about,
            after_step=progress.step if resume else None,
        )  # fmt: skip
    module = accelerator.prepare(objective)
    teachers = {"task": teacher, "supplementary": supplementary_teacher}
    for teaching in teachers.values():
        if teaching is not None:
            teaching.bring(accelerator.device, comes_back=storing is not None and storing.cache != "off")
    sources = [supplementary if stage.data == "supplementary" else data for stage in objective.stages]
    lessons = lessons_of(objective, sources, teachers, lengths, window, settings.seed, progress.step)
    with own_stream(accelerator.device):
        taught = stage_teachers(
            lessons, objective, storing, accelerator,
            batch_size=settings.batch_size, before=progress.stored, decided=stored, run=str(folder),
        )  # fmt: skip
    progress = taught.noted(progress)
    if main and taught.choices and not progress.step:
        checkpoint.save_begun(folder, progress)
    if main and progress.store_choices:
        keep_stored(progress.stored or ())

    try:
        with bar("train", total) as shown, idle_teachers_away(taught.teachers, objective, accelerator, folder):
            shown.advance(progress.step)
            start = 0
            for index, length in enumerate(lengths):
                if progress.step < start + length and not progress.stopped:
                    source = sources[index]
                    assert source is not None
                    progress = _stage(
                        index, start, length, math.ceil(len(source) / window), window, progress, resumed_at,
                        module=module, objective=objective, data=source, settings=settings, accelerator=accelerator,
                        teacher=taught.teachers[index],
                        score=score if index == len(lengths) - 1 else None, folder=folder, log=log, shown=shown,
                        policy=policy, advice=advice or Plain(),
                    )  # fmt: skip
                start += length
    finally:
        for teaching in teachers.values():
            if teaching is not None:
                teaching.home.clear()
        # What the last optimiser remembers is twice the student; scoring should not have to stand beside it.
        accelerator._optimizers.clear()
        if log is not None:
            log.close()
    if settings.keep == "best" and progress.best_step is not None and progress.best_step != progress.step:
        checkpoint.load_best(folder, objective, progress.best_step)
    kept = progress.best_step if settings.keep == "best" and progress.best_step is not None else progress.step
    return Outcome(
        steps=progress.step,
        kept_step=kept,
        seconds=progress.seconds,
        stopped_early=progress.stopped,
        best=progress.best,
        last=progress.last,
        store_seconds=progress.store_seconds,
        store_choices=progress.store_choices,
        stored=progress.stored if progress.store_choices else None,
        warnings=progress.warnings if settings.guards else None,
    )


def _stage(
    stage: int,
    start: int,
    length: int,
    per_epoch: int,
    window: int,
    progress: Progress,
    resumed_at: int | None,
    *,
    module: nn.Module,
    objective: Objective,
    data: Trainable,
    settings: Training,
    accelerator: Accelerator,
    teacher: Teacher | None,
    score: Score | None,
    folder: Path,
    log: RunLog | None,
    shown: Bar,
    policy: OnPolicy | None,
    advice: Advice,
) -> Progress:
    """Run one stage from where the run stands to the stage's end, with an optimiser of its own."""
    device, recipe = accelerator.device, objective.stages[stage]
    optimiser = adamw(objective, settings.lr, settings.weight_decay)
    if resumed_at is not None and start < resumed_at < start + length:
        checkpoint.restore_optimiser(folder, objective, optimiser)
    # Of an earlier stage's optimiser nothing may stay: the same gradients would be unscaled once for each.
    accelerator._optimizers.clear()
    stepper = accelerator.prepare(optimiser)
    if accelerator.scaler is not None and progress.scaler is not None:
        accelerator.scaler.load_state_dict(progress.scaler)
        progress = progress.after(scaler=None)
    take = Step(
        module=module, objective=objective, teacher=teacher, accelerator=accelerator, optimiser=stepper,
        clip=settings.clip,
    )  # fmt: skip
    graphs = graphs_for(take, stage, settings)
    clock_of = partial(clock_at, settings.seed, stage, start, length, per_epoch)
    prepare = Preparing(
        clock_of=clock_of, per_epoch=per_epoch, window=window, batch_size=settings.batch_size, objective=objective,
        data=data, teacher=teacher, accelerator=accelerator, packs=graphs is not None,
    )  # fmt: skip
    steps = range(progress.step, start + length)
    telling = Telling(accelerator)
    guards: Guards | None = None
    if settings.guards and accelerator.is_main_process:
        guards = Guards(
            take, stage, length=length, per_epoch=per_epoch, graphs=graphs is not None, advice=advice,
            before=progress.warnings,
        )  # fmt: skip
    module.train()

    with own_stream(device), closing(ahead(prepare, steps, AHEAD if device.type == "cuda" else 0)) as prepared:
        for step in steps:
            began = time.perf_counter()
            parts, whole = next(prepared)
            clock = clock_of(step)
            if guards is not None and guards.due(clock):
                progress = _told(guards.look(parts[0], clock), progress, log)
            rate = learning_rate(settings.lr, step - start, length, settings.warmup)
            set_rate(optimiser, rate)
            last = step + 1 == start + length
            logs = (step + 1) % settings.log_every == 0 or last or step == start
            grad_norms = logs and settings.grad_norms
            if policy is not None and recipe.needs_teacher and writes_itself(policy, clock):
                there = [part.to(device) for part in parts]
                written = on_policy(there, objective.student, policy, clock, accelerator)
                said = take(written, clock, grad_norms=grad_norms)
            elif graphs is not None and whole is not None and not grad_norms:
                said = graphs(whole, clock)
            else:
                said = take([part.to(device) for part in parts], clock, grad_norms=grad_norms)
            ends_epoch = (step + 1 - start) % per_epoch == 0
            objective.after_step(new_epoch=ends_epoch)
            due = ends_epoch if settings.eval_every is None else (step + 1 - start) % settings.eval_every == 0
            scores, saves = due or last, (step + 1) % settings.checkpoint_every == 0
            telling.add(said, {"stage": recipe.name, "epoch": clock.epoch + 1, "lr": rate} if logs else None)
            for one, facts in telling.told(wait=scores or saves):
                numbers = one.numbers(accelerator)
                shown.advance(0, note=f"{recipe.name}: {note(numbers)}")
                if log is not None:
                    seconds = progress.seconds + time.perf_counter() - began
                    log.write("train", one.step, **facts, **numbers, seconds=round(seconds, 4))

            step_seconds = time.perf_counter() - began
            progress = progress.after(step=step + 1, seconds=progress.seconds + step_seconds)
            shown.advance()
            if score is not None and scores:
                metrics = score(objective.student)
                progress = _scored(metrics, progress, objective, settings, folder, log)
                if guards is not None:
                    progress = _told(guards.scored(metrics, clock, lr=settings.lr), progress, log)
                module.train()
            if saves and not last and not progress.stopped:
                if accelerator.is_main_process:
                    scaler = accelerator.scaler.state_dict() if accelerator.scaler is not None else None
                    checkpoint.save(folder, objective, optimiser, progress.after(scaler=scaler))
                accelerator.wait_for_everyone()
            if progress.stopped:
                break
    return progress


def _told(found: Sequence[Warned], progress: Progress, log: RunLog | None) -> Progress:
    """Say what guards found, and write it down."""
    for one in found:
        say(one.line)
        if log is not None:
            log.write("warning", one.step, **{name: value for name, value in one.record().items() if name != "step"})
    return progress.after(warnings=[*progress.warnings, *(one.record() for one in found)])


def _scored(
    metrics: Mapping[str, float],
    progress: Progress,
    objective: Objective,
    settings: Training,
    folder: Path,
    log: RunLog | None,
) -> Progress:
    """Write the dev scores down, keep the weights if they are the best, and stop when patience has run out."""
    metrics = dict(metrics)
    main, value = next(iter(metrics.items()))
    progress = progress.after(last=metrics)
    if log is not None:
        log.write("dev", progress.step, metrics=metrics)
    if progress.best is None or value > progress.best[main]:
        if settings.keep == "best" and log is not None:
            checkpoint.save_best(folder, objective, progress.step)
        return progress.after(best=metrics, best_step=progress.step, stale=0)
    stale = progress.stale + 1
    return progress.after(stale=stale, stopped=settings.patience is not None and stale >= settings.patience)
