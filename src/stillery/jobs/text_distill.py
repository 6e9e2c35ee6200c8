"""Distil a teacher that writes text into a smaller student."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from stillery import methods
from stillery.data.schema.examples import Examples, Splits
from stillery.errors import ErrorList, UserError
from stillery.evaluate.generate import Decoding, end_ids
from stillery.jobs.calibration import Calibration
from stillery.jobs.config.inherited import as_taught
from stillery.jobs.config.resolved import resolved_method, resolved_student
from stillery.jobs.config.settings import EXAMPLES, Asked, Distill, MethodSettings
from stillery.jobs.fingerprints import distill_prints
from stillery.jobs.model_kind import check_no_classes
from stillery.jobs.recipe import (
    check_learns,
    check_steps,
    check_supplementary,
    chosen_recipe,
    on_supplementary,
    with_another_teacher,
)
from stillery.jobs.run import Prepared, check_fingerprints, check_training
from stillery.jobs.run_folder import check_place
from stillery.jobs.student_start import Starts, first_student, fixed_start
from stillery.jobs.teacher_texts import TeacherTexts, teacher_texts
from stillery.jobs.text_conditions import drawn
from stillery.jobs.text_generation import Writing
from stillery.jobs.text_inputs import Reading, TextScored, supplementary_named, text_parts_of, written_out
from stillery.jobs.text_scores import decoding_of, need_scorer
from stillery.jobs.text_student import make_generator
from stillery.models.family import kind_of, stack_sizes
from stillery.models.generator_student import check_same_outputs
from stillery.models.inputs import starts_with_padding
from stillery.models.load import Loaded, load_generator
from stillery.models.option_words import DEFAULT_TEXT_START
from stillery.models.student import Student
from stillery.recipe import Clock, Pairs, Recipe, Stage
from stillery.similarity_pairing import asks
from stillery.stacks import on_stacks
from stillery.train.check import check_stages
from stillery.train.on_policy import OnPolicy
from stillery.train.step_plan import pairs_of, sizes_in

__all__ = ["prepare_text_distill"]


def prepare_text_distill(asked: Asked[Distill], out: Path | None = None, own: Recipe | None = None) -> Prepared:
    """Load and check everything; all errors are reported together."""
    run, errors = asked.run, asked.gathered()
    recipe: Recipe | None = None
    teacher: Loaded | None = None
    ild_teacher: Loaded | None = None
    parts: Splits | None = None
    scored: dict[str, TextScored] = {}
    reading: Reading | None = None
    other_reading: Reading | None = None
    texts: Examples | None = None
    student: Student | None = None
    starts: Starts | None = None
    calibration: Calibration | None = None
    conditions: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    if out is not None:
        with errors.catch():
            check_place(out)
    check_training(run.training, errors)
    check_no_classes(run.data, errors)
    if run.data.unlabelled:
        errors.add("--unlabelled is for classifiers: a model that writes text needs texts to write")
    if asked.clear("teacher"):
        with errors.catch():
            teacher = load_generator(run.teacher)
            run, notes = as_taught(asked, errors)
    if asked.clear("method"):
        with errors.catch():
            if teacher is not None:
                run = dataclasses.replace(run, method=_for_family(run.method, teacher))
            recipe = _recipe(run.method, own, teacher)
            check_learns(recipe.stages, errors)
            if run.method.on_policy:
                _check_policy(recipe, errors)
    if run.method.ild_teacher is not None:
        with errors.catch():
            ild_teacher = load_generator(run.method.ild_teacher)
            if teacher is not None:
                check_same_outputs(teacher, ild_teacher)
    if asked.clear(*EXAMPLES):
        with errors.catch():
            parts, scored = text_parts_of(run.data, run.generation)
            parts, conditions = drawn(run.condition, parts)
            need_scorer(scored.values())
    other = supplementary_named(run.method, run.data, run.generation)
    with errors.catch():
        check_supplementary(run.method)
        texts = text_parts_of(*other)[0].train if other is not None else None
        if recipe is not None:
            recipe = on_supplementary(recipe, texts is not None)
    if recipe is not None and parts is not None:
        check_steps(recipe.stages, run.training, len(parts.train), errors)
    settings = resolved_student(run.student, recipe, start=DEFAULT_TEXT_START)
    if teacher is not None and asked.clear(*_DEPTHS):
        with errors.catch():
            calibration = Calibration.for_writers(parts.train, teacher, run.data, run.generation) if parts else None
            make = partial(make_generator, teacher=teacher, seed=run.training.seed, calibration=calibration)
            student, settings, starts = first_student(make, settings)
    if student is not None and teacher is not None:
        configs = [one.model.config for one in (teacher, student, ild_teacher) if one is not None]
        with errors.catch():
            reading = Reading.of(run.data, run.generation, configs)
            reading.check(teacher.tokenizer)
            decoding = decoding_of(run.search, reading, configs)
            if other is not None:
                other_reading = Reading.of(*other, configs)
                other_reading.check(teacher.tokenizer)
    clock = Clock(seed=run.training.seed)
    if student is not None and teacher is not None and recipe is not None:
        _check(recipe, student, teacher, ild_teacher or teacher, clock, errors)
    if student is not None and run.method.drop_start and not starts_with_padding(student.model):
        errors.add(
            f"--drop-start: a {student.model.config.model_type} model starts with no padding token; leave it out"
        )
    errors.raise_any()
    assert recipe is not None and teacher is not None and parts is not None and student is not None
    assert reading is not None
    prints = distill_prints(
        run, settings, parts=parts, teacher=teacher, ild_teacher=ild_teacher, texts=texts, recipe=recipe,
        student=student,
    )  # fmt: skip
    check_fingerprints(run.fingerprints, prints)
    resolved = dataclasses.replace(
        run, student=settings, method=resolved_method(run.method), fingerprints=prints,
        generation=written_out(run.generation, reading),
    )  # fmt: skip
    return Prepared(
        run=resolved,
        subject=Writing(
            parts=parts, scored=scored, reading=reading, decoding=decoding, supplementary=texts,
            supplementary_reading=other_reading,
            rewrite=_rewriting(run, teacher, reading, decoding) if run.method.sequence_level else None,
        ),
        model=student.model,
        tokenizer=teacher.tokenizer,
        teacher=teacher,
        ild_teacher=ild_teacher,
        conditions=conditions,
        policy=_policy(run, student, teacher, reading),
        drop_start=run.method.drop_start,
        stages=recipe.stages,
        origin=student.origin,
        starts=starts,
        start=fixed_start(asked.run.student, settings, recipe),
        calibration=calibration,
        notes=notes,
        paper="a recipe of its own" if run.method.recipe else methods.find(run.method.method).paper,
        pairs=_pairs(recipe.stages, student, teacher, ild_teacher or teacher, clock),
    )  # fmt: skip


_DEPTHS = ("layers", "encoder_layers", "decoder_layers", "copy_layers", "copy_encoder_layers", "copy_decoder_layers")

_RESIDUAL = ("t5", "mt5", "gpt2", "llama", "qwen2", "qwen3")
"""Families whose states are a residual stream, which grows from layer to layer."""


def _for_family(method: MethodSettings, teacher: Loaded) -> MethodSettings:
    """The method with what suits the teacher's family, where nothing else is said.

    States are normalised token by token, so that neither padding nor who shares a batch changes a loss.
    """
    if method.recipe is not None:
        return method
    config, known = teacher.model.config, methods.find(method.method).options
    suits: dict[str, Any] = {}
    if config.model_type in _RESIDUAL and known.get("normalise") == "none":
        suits["normalise"] = "token"
    if kind_of(config) == "decoder" and "embedding" in known:
        if method.options.get("embedding"):
            raise UserError(
                "embedding=true: embeddings of a model that is a decoder alone are not matched; leave it out"
            )
        suits["embedding"] = False
    return dataclasses.replace(method, options=suits | dict(method.options))


def _recipe(method: MethodSettings, own: Recipe | None, teacher: Loaded | None) -> Recipe:
    recipe = chosen_recipe(method, own)
    if method.ild_teacher is not None:
        recipe = with_another_teacher(recipe)
    if teacher is None:
        return recipe
    which: Any = method.stacks
    if which != "both" and not any(match.stack is None for stage in recipe.stages for match in stage.matches):
        raise UserError(
            f"--stacks {which}: the method matches no layers, or names their stack itself; leave it at both"
        )
    return on_stacks(recipe, kind_of(teacher.model.config), which=which, cross_attention=method.cross_attention)


def _rewriting(
    run: Distill, teacher: Loaded, reading: Reading, decoding: Decoding
) -> Callable[[Examples], TeacherTexts]:
    return lambda examples: teacher_texts(teacher, examples, reading, decoding, run.training.batch_size)


def _check(recipe: Recipe, student: Student, teacher: Loaded, other: Loaded, clock: Clock, errors: ErrorList) -> None:
    ours = student.model.config
    for stage in recipe.stages:
        theirs = (other if stage.teacher == "supplementary" else teacher).model.config
        with errors.catch():
            check_stages([stage], stack_sizes(ours), stack_sizes(theirs), clock, (ours, theirs))


def _policy(run: Distill, student: Student, teacher: Loaded, reading: Reading) -> OnPolicy | None:
    """How the student writes its own targets, where it does."""
    if not run.method.on_policy:
        return None
    return OnPolicy(
        rate=run.method.on_policy,
        max_new_tokens=reading.max_target,
        end_ids=tuple(end_ids(student.model, teacher.tokenizer)),
        pad_id=int(teacher.tokenizer.pad_token_id),
        drop_start=run.method.drop_start,
    )


def _check_policy(recipe: Recipe, errors: ErrorList) -> None:
    """Note what cannot be learnt from texts the student writes itself."""
    for stage in recipe.stages:
        if stage.mixing is not None:
            errors.add(f"--on-policy: stage {stage.name} mixes examples, which texts of the student's own cannot be")
    learning = [dataclasses.replace(stage, hard_weight=0.0) for stage in recipe.stages if stage.needs_teacher]
    check_learns(tuple(learning), errors)
    if not learning:
        errors.add("--on-policy: the method asks the teacher nothing; choose one that does, such as kd")


def _pairs(
    stages: tuple[Stage, ...], student: Student, teacher: Loaded, other: Loaded, clock: Clock
) -> dict[str, Pairs]:
    """Which layers meet in every match at the start."""
    found = {}
    for stage in stages:
        theirs = stack_sizes((other if stage.teacher == "supplementary" else teacher).model.config)
        for match in (match for match in stage.matches if not asks(match)):
            depths = [sizes_in(each, match.stack).layers for each in (stack_sizes(student.model.config), theirs)]
            found[match.name] = pairs_of(match, depths[0], depths[1], clock)
    return found
