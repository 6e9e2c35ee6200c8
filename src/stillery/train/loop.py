"""The training loop of all methods, written to be read from top to bottom.

An optimiser step processes a *window* of examples, divided into micro-batches over accumulation and processes; the loss
does not depend on the division. Everything random or scheduled is a function of the step, so a run that is killed and
resumed is bit-identical to an uninterrupted one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState
from accelerate.utils import GradientAccumulationPlugin
from torch import nn
from transformers import PreTrainedModel

from stillery.models.attention import for_any_length, unread_masks
from stillery.progress import Bar, bar, say
from stillery.recipe import Clock
from stillery.similarity_pairing import check_measured
from stillery.stop_signals import StopAfterStep, interruption, stop_after_step
from stillery.train import checkpoint
from stillery.train.callbacks import Callback, asks_to_stop
from stillery.train.checkpoint import Progress
from stillery.train.cuda.graph_step import Graphs, graphs_for
from stillery.train.cuda.stream import own_stream
from stillery.train.deferred_losses import DeferredLosses
from stillery.train.distributed import first_of_any, from_main, raised_in_all
from stillery.train.guards import Advice, Guards, GuardWarning, PlainAdvice
from stillery.train.held_memory import held_heap
from stillery.train.learning_rate import learning_rate, run_steps
from stillery.train.log import RunLog
from stillery.train.objective import Objective
from stillery.train.on_policy import is_on_policy, with_generated_targets
from stillery.train.optimiser import adamw, set_rate
from stillery.train.prefetch import prefetch
from stillery.train.save_timer import SaveTimer
from stillery.train.settings import Training
from stillery.train.snapshots import save_snapshot
from stillery.train.stage_clocks import Sources, StageSpan, lengths_of, spans_of
from stillery.train.step import Step
from stillery.train.step_inputs import StepInputs, StepLoader
from stillery.train.step_losses import StepLosses, note
from stillery.train.teacher import Teacher
from stillery.train.teacher_cache.offload import idle_teachers_offloaded
from stillery.train.teacher_cache.stages import CacheUse, stage_teachers
from stillery.train.trainable import TextData, Trainable, TrainingData

__all__ = [
    "CacheUse",
    "Monitoring",
    "Outcome",
    "Score",
    "Sources",
    "TextData",
    "Trainable",
    "TrainingData",
    "accelerator_for",
    "train",
]

PREFETCHED = 4
"""Number of steps whose inputs are prefetched while a GPU computes earlier steps."""

STOPS_EVERY = 10
"""Steps after which several processes look whether one of them was asked to stop."""

Score = Callable[[PreTrainedModel], Mapping[str, float]]
"""Scores the student on the dev split; the first metric decides which weights are best."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Monitoring:
    """Monitoring of a run: scoring on the dev split, the advice of guards, and the settings recorded by trackers.

    `on_step` receives the loss and its terms after every step, as soon as they are read: on a GPU some steps later.
    `on_score` receives every score. Both are called by the main process, and either may stop the run.
    """

    score: Score | None = None
    advice: Advice = field(default_factory=PlainAdvice)
    about: Mapping[str, Any] = field(default_factory=dict)
    on_step: Callback | None = None
    on_score: Callback | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a training run; `best` and `last` are the best and last metrics on the dev split.

    Of the `seconds`, `store_seconds` were spent on choosing and filling the teacher cache; `store_choices` are its
    decisions, and `stored` the stages that read it, None where none could. `warnings` are those of the guards; None
    where guards were off. `stopped_by` is the callback that stopped the run.
    """

    steps: int
    kept_step: int
    seconds: float
    stopped_early: bool
    stopped_by: str | None = None
    best: Mapping[str, float] | None = None
    last: Mapping[str, float] | None = None
    store_seconds: float = 0.0
    store_choices: Sequence[Mapping[str, Any]] = ()
    stored: Sequence[int] | None = None
    warnings: Sequence[Mapping[str, Any]] | None = None


def accelerator_for(precision: str) -> Accelerator:
    """Return an accelerator for this precision, independent of that of earlier runs in this process."""
    AcceleratorState._reset_state(reset_partial_state=False)
    # A hidden-state stage leaves the classifier, and other stages' projections, without a gradient.
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)
    # By itself it would divide losses by a number that a launcher's environment gives.
    one = GradientAccumulationPlugin(num_steps=1)
    number_format = {"fp32": "no"}.get(precision, precision)
    return Accelerator(mixed_precision=number_format, kwargs_handlers=[unused], gradient_accumulation_plugin=one)


@held_heap()
@for_any_length()
@unread_masks()
def train(
    objective: Objective,
    sources: Sources,
    settings: Training,
    *,
    accelerator: Accelerator,
    folder: Path,
    resume: bool = False,
    cache: CacheUse | None = None,
    monitoring: Monitoring | None = None,
) -> Outcome:
    """Train the objective's student in place; write the run's log and checkpoints to `folder`.

    The number of steps is that of `epochs` over the main data of the `sources`; stages on supplementary texts take
    their share of it. Without a `cache` the teacher runs in every step.
    """
    check_measured(objective.stages)
    window = settings.batch_size * settings.accumulate * accelerator.num_processes
    total = run_steps(settings.epochs, len(sources.data), window, settings.max_steps)
    lengths = lengths_of(objective.stages, total)
    progress, resumed_at = _start(folder, objective, settings, accelerator, resume)
    monitoring, log = monitoring or Monitoring(), None
    if accelerator.is_main_process:
        log = _log(folder, settings, monitoring, accelerator, progress, resume)
    module = accelerator.prepare(objective)
    for teacher in sources.teachers:
        teacher.bring(accelerator.device, may_offload=cache is not None and cache.settings.cache != "off")
    spans = spans_of(objective.stages, sources, lengths, window=window, seed=settings.seed, step=progress.step)
    with own_stream(accelerator.device):
        chosen = stage_teachers(
            spans, objective, cache, accelerator,
            batch_size=settings.batch_size, step=progress.step, before=progress.stored, run=str(folder),
        )  # fmt: skip
    progress = chosen.noted(progress)
    if accelerator.is_main_process and chosen.choices and not progress.step:
        checkpoint.save_begun(folder, progress)
    if accelerator.is_main_process and cache is not None and progress.store_choices:
        cache.on_decision(progress.stored or ())
    if settings.snapshot_every is not None and accelerator.is_main_process and not progress.step:
        save_snapshot(folder, objective.student, 0)

    try:
        with (
            bar("train", total) as shown,
            idle_teachers_offloaded(chosen.teachers, objective, accelerator, folder),
            stop_after_step() as asked,
        ):
            shown.advance(progress.step)
            run = _Run(
                module=module, objective=objective, sources=sources, settings=settings, accelerator=accelerator,
                folder=folder, log=log, bar=shown, monitoring=monitoring,
                timer=SaveTimer(settings.checkpoint_seconds, accelerator), asked=asked,
            )  # fmt: skip
            for span in spans:
                if not progress.stopped:
                    progress = _stage(run, span, chosen.teachers[span.stage], progress, resumed_at)
    finally:
        for teacher in sources.teachers:
            teacher.host_weights.clear()
        # The state of the last optimiser is twice the student's size; free it before scoring.
        accelerator._optimizers.clear()
        if log is not None:
            log.close()
    return _outcome(folder, objective, settings, progress)


def _start(
    folder: Path, objective: Objective, settings: Training, accelerator: Accelerator, resume: bool
) -> tuple[Progress, int | None]:
    """Restore the weights of a resumed run; return the progress to start from, and the step it resumes at, if any."""
    progress = checkpoint.read_begun(folder) if resume else Progress()
    if resume:
        with raised_in_all(accelerator):
            if accelerator.is_main_process:
                checkpoint.drop_damaged(folder, keep_best=settings.keep == "best")
    if resume and checkpoint.has_checkpoint(folder):
        progress = checkpoint.read_progress(folder)
        checkpoint.restore_weights(folder, objective)
    return progress, progress.step if progress.step else None


def _log(
    folder: Path, settings: Training, monitoring: Monitoring, accelerator: Accelerator, progress: Progress, resume: bool
) -> RunLog:
    return RunLog(
        folder,
        accelerator=accelerator,
        trackers=settings.trackers,
        about=monitoring.about,
        after_step=progress.step if resume else None,
    )


def _outcome(folder: Path, objective: Objective, settings: Training, progress: Progress) -> Outcome:
    """Load the weights to keep into the objective, and return the result of the run."""
    kept = progress.step
    if settings.keep == "best" and progress.best_step is not None and progress.best_step != progress.step:
        kept = progress.best_step
        checkpoint.load_best(folder, objective, kept)
    return Outcome(
        steps=progress.step,
        kept_step=kept,
        seconds=progress.seconds,
        stopped_early=progress.stopped,
        stopped_by=progress.stopped_by,
        best=progress.best,
        last=progress.last,
        store_seconds=progress.store_seconds,
        store_choices=progress.store_choices,
        stored=progress.stored if progress.store_choices else None,
        warnings=progress.warnings if settings.guards else None,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Run:
    """The objects shared by all stages of a run."""

    module: nn.Module
    objective: Objective
    sources: Sources
    settings: Training
    accelerator: Accelerator
    folder: Path
    log: RunLog | None
    bar: Bar
    monitoring: Monitoring
    timer: SaveTimer
    asked: StopAfterStep

    def stop(self, step: int) -> int | None:
        """Return the signal that asked any process to stop; several processes compare notes every few steps only."""
        if self.accelerator.num_processes > 1 and step % STOPS_EVERY:
            return None
        return first_of_any(self.accelerator, self.asked.number)

    def write(self, event: str, step: int, **values: Any) -> None:
        """Log one event, in the main process only."""
        if self.log is not None:
            self.log.write(event, step, **values)


@dataclass(frozen=True, kw_only=True)
class _Due:
    """The actions due after a step: logging, scoring, saving; and whether it ends its stage or an epoch."""

    last: bool
    ends_epoch: bool
    logs: bool
    scores: bool
    saves: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class _StageRun:
    """The objects shared by all steps of a stage; `optimiser` is the one that the accelerator's in `step` wraps."""

    run: _Run
    span: StageSpan
    step: Step
    optimiser: torch.optim.Optimizer
    graphs: Graphs | None
    guards: Guards | None
    losses: DeferredLosses

    def due(self, clock: Clock) -> _Due:
        """Return the actions due after the step at this time."""
        settings, done = self.run.settings, clock.stage_step + 1
        last, ends_epoch = done == self.span.length, done % self.span.per_epoch == 0
        scores = ends_epoch if settings.eval_every is None else done % settings.eval_every == 0
        return _Due(
            last=last,
            ends_epoch=ends_epoch,
            logs=(clock.step + 1) % settings.log_every == 0 or last or clock.stage_step == 0,
            scores=scores or last,
            saves=(clock.step + 1) % settings.checkpoint_every == 0 or self.run.timer.due(),
        )

    def take(self, inputs: StepInputs, *, grad_norms: bool) -> StepLosses:
        """Take a step: on-policy, as a replayed CUDA graph, or eagerly."""
        plan, device, policy = inputs.plan, self.run.accelerator.device, self.run.sources.on_policy
        if policy is not None and plan.stage.needs_teacher and is_on_policy(policy, plan.clock):
            there = [one.to(device) for one in inputs.micro_batches]
            student, accelerator = self.run.objective.student, self.run.accelerator
            generated = with_generated_targets(there, student, policy, plan.clock, accelerator)
            return self.step(plan, generated, grad_norms=grad_norms)
        if self.graphs is not None and inputs.packed is not None and not grad_norms:
            return self.graphs(inputs.packed)
        return self.step(plan, [one.to(device) for one in inputs.micro_batches], grad_norms=grad_norms)


def _stage(run: _Run, span: StageSpan, teacher: Teacher | None, progress: Progress, resumed_at: int | None) -> Progress:
    """Train one stage from the current step to its end, with its own optimiser."""
    settings, accelerator, objective = run.settings, run.accelerator, run.objective
    optimiser = adamw(objective, settings.lr, settings.weight_decay)
    if resumed_at is not None and span.start < resumed_at < span.end:
        checkpoint.restore_optimiser(run.folder, objective, optimiser)
    # Drop the optimisers of earlier stages: the same gradients would be unscaled once for each.
    accelerator._optimizers.clear()
    prepared = accelerator.prepare(optimiser)
    if accelerator.scaler is not None and progress.scaler is not None:
        accelerator.scaler.load_state_dict(progress.scaler)
        progress = progress.after(scaler=None)
    step = Step(
        module=run.module, objective=objective, teacher=teacher, accelerator=accelerator, optimiser=prepared,
        clip=settings.clip,
    )  # fmt: skip
    graphs = graphs_for(step, span.stage, settings)
    guards: Guards | None = None
    if settings.guards and accelerator.is_main_process:
        guards = Guards(step, span, graphs=graphs is not None, advice=run.monitoring.advice, before=progress.warnings)
    stage = _StageRun(
        run=run, span=span, step=step, optimiser=optimiser, graphs=graphs, guards=guards,
        losses=DeferredLosses(accelerator),
    )  # fmt: skip
    load = StepLoader(
        span=span, batch_size=settings.batch_size, objective=objective, teacher=teacher, accelerator=accelerator,
        packs=graphs is not None,
    )  # fmt: skip
    run.module.train()
    steps, depth = range(progress.step, span.end), PREFETCHED if accelerator.device.type == "cuda" else 0
    with own_stream(accelerator.device), closing(prefetch(load, steps, depth)) as prefetched:
        for _ in steps:
            progress = _step(stage, prefetched, progress)
            if progress.stopped:
                break
    return progress


def _step(stage: _StageRun, prefetched: Iterator[StepInputs], progress: Progress) -> Progress:
    """Take the next step, log the losses that have arrived, and perform the actions due after it."""
    run, settings, began = stage.run, stage.run.settings, time.perf_counter()
    inputs = next(prefetched)
    clock = inputs.plan.clock
    due = stage.due(clock)
    if stage.guards is not None and stage.guards.due(clock):
        progress = _warn(run, stage.guards.check(inputs.plan, inputs.micro_batches[0]), progress)
        if stage.guards.measured is not None:
            measured = stage.guards.measured.record()
            run.write("guards", clock.step + 1, stage=inputs.plan.stage.name, epoch=clock.epoch + 1, **measured)
    rate = learning_rate(settings.lr, clock.stage_step, stage.span.length, settings.warmup)
    set_rate(stage.optimiser, rate)
    losses = stage.take(inputs, grad_norms=due.logs and settings.grad_norms)
    run.objective.after_step(new_epoch=due.ends_epoch)
    stop = run.stop(clock.step)
    due = replace(due, saves=due.saves or stop is not None)
    name = inputs.plan.stage.name
    logged = {"stage": name, "epoch": clock.epoch + 1, "lr": rate} if due.logs else {}
    stage.losses.add(losses, logged if logged or run.monitoring.on_step is not None else None)
    for one, fields in stage.losses.arrived(wait=due.scores or due.saves):
        numbers = one.numbers(run.accelerator)
        progress = _called(run, "on_step", one.step, numbers, progress)
        if not fields:
            continue
        several = len(run.objective.stages) > 1
        run.bar.advance(0, note=[*([name] if several else []), *note(numbers)])
        seconds = progress.seconds + time.perf_counter() - began
        run.write("train", one.step, **fields, **numbers, seconds=round(seconds, 4))
    seen = stage.losses.seen()
    if stage.guards is not None and run.sources.on_policy is None:
        progress = _warn(run, stage.guards.check_losses(seen, settings.lr), progress)
    progress = progress.after(step=clock.step + 1, seconds=progress.seconds + time.perf_counter() - began)
    run.bar.advance()
    progress = _after_step(stage, clock, due, progress)
    # At the end of a stage no checkpoint is written; the next step stops the run.
    if stop is not None and not due.last and not progress.stopped:
        raise interruption(stop, saved=progress.step)
    return progress


def _after_step(stage: _StageRun, clock: Clock, due: _Due, progress: Progress) -> Progress:
    """Score the student on the dev split and save a checkpoint, where due."""
    run = stage.run
    in_last_stage = clock.stage == len(run.objective.stages) - 1
    if run.monitoring.score is not None and ((in_last_stage and due.scores) or progress.stopped):
        metrics = run.monitoring.score(run.objective.student)
        progress = _scored(run, metrics, progress)
        if stage.guards is not None:
            progress = _warn(run, stage.guards.check_score(metrics, clock, lr=run.settings.lr), progress)
        run.module.train()
    if due.saves and not due.last and not progress.stopped:
        if run.accelerator.is_main_process:
            scaler = run.accelerator.scaler.state_dict() if run.accelerator.scaler is not None else None
            with run.timer.saving():
                checkpoint.save(run.folder, run.objective, stage.optimiser, progress.after(scaler=scaler))
        run.accelerator.wait_for_everyone()
    every = run.settings.snapshot_every
    if every is not None and run.accelerator.is_main_process and (progress.step % every == 0 or due.last):
        save_snapshot(run.folder, run.objective.student, progress.step)
    return progress


def _warn(run: _Run, found: Sequence[GuardWarning], progress: Progress) -> Progress:
    """Print and log the warnings of guards."""
    for one in found:
        say(one.line)
        run.write("warning", one.step, **{name: value for name, value in one.record().items() if name != "step"})
    return progress.after(warnings=[*progress.warnings, *(one.record() for one in found)])


def _scored(run: _Run, metrics: Mapping[str, float], progress: Progress) -> Progress:
    """Log the dev split's metrics, keep the weights if they are the best, and stop when patience has run out."""
    metrics = dict(metrics)
    main, value = next(iter(metrics.items()))
    progress = progress.after(last=metrics)
    run.write("dev", progress.step, metrics=metrics)
    progress = _called(run, "on_score", progress.step, metrics, progress)
    # A run may be resumed with another main metric.
    if progress.best is None or value > progress.best.get(main, -math.inf):
        if run.settings.keep == "best" and run.log is not None:
            checkpoint.save_best(run.folder, run.objective, progress.step)
        return progress.after(best=metrics, best_step=progress.step, stale=0)
    stale, patience = progress.stale + 1, run.settings.patience
    return progress.after(stale=stale, stopped=progress.stopped or (patience is not None and stale >= patience))


def _called(run: _Run, name: str, step: int, numbers: Mapping[str, Any], progress: Progress) -> Progress:
    """Call the user's callback of that name, if given, and stop the run if it requests that."""
    callback: Callback | None = getattr(run.monitoring, name)
    if callback is None:
        return progress
    stops = False
    if run.accelerator.is_main_process:
        flat = {"loss": numbers["loss"], **numbers["terms"]} if "terms" in numbers else dict(numbers)
        stops = asks_to_stop(callback(step, flat))
    if not from_main(run.accelerator, stops) or progress.stopped:
        return progress
    say(f"step {step}: {name} stops the run; it is scored and finished with what it has learnt so far")
    run.write("stopped", step, by=name)
    return progress.after(stopped=True, stopped_by=name)
