"""Distil a fine-tuned teacher into a smaller student."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import torch

from stillery import methods
from stillery.data.schema.examples import Examples, Splits
from stillery.data.schema.labels import Labels
from stillery.errors import ErrorList
from stillery.jobs.calibration import Calibration
from stillery.jobs.classification import Classification
from stillery.jobs.conditions import under
from stillery.jobs.config.resolved import resolved_method, resolved_student
from stillery.jobs.config.settings import EXAMPLES, Asked, Distill
from stillery.jobs.fingerprints import distill_prints
from stillery.jobs.finish import Result
from stillery.jobs.inputs import parts_of, supplementary_texts
from stillery.jobs.model_kind import check_no_text, writes_text
from stillery.jobs.recipe import (
    check_learns,
    check_one_class,
    check_steps,
    check_supplementary,
    check_unlabelled,
    chosen_recipe,
    on_supplementary,
    with_another_teacher,
    without_labels,
)
from stillery.jobs.run import Prepared, carry_out, check_fingerprints, check_training
from stillery.jobs.run_folder import check_place
from stillery.jobs.student import make_student
from stillery.jobs.student_start import Starts, first_student, fixed_start
from stillery.jobs.text_distill import prepare_text_distill
from stillery.models.family import sizes
from stillery.models.load import Loaded, check_same_tokenizer, load_classifier
from stillery.models.projected_head import head_of
from stillery.models.student import Student
from stillery.recipe import Clock, Recipe, Stage
from stillery.similarity_pairing import asks
from stillery.train.check import check_stages
from stillery.train.objective import pairs_of

__all__ = ["prepare_distill", "run_distill"]


def prepare_distill(asked: Asked[Distill], out: Path | None = None, own: Recipe | None = None) -> Prepared:
    """Load and check everything; all errors are reported together."""
    writes = writes_text(asked.run.teacher) if asked.clear("teacher") else None
    if writes:
        return prepare_text_distill(asked, out, own)
    run, errors = asked.run, asked.gathered()
    if writes is not None:
        check_no_text(asked, errors)
    recipe: Recipe | None = None
    teacher: Loaded | None = None
    ild_teacher: Loaded | None = None
    parts: Splits | None = None
    conditions: dict[str, Any] = {}
    student: Student | None = None
    starts: Starts | None = None
    calibration: Calibration | None = None
    if out is not None:
        with errors.catch():
            check_place(out)
    check_training(run.training, errors)
    if run.data.unlabelled:
        run = dataclasses.replace(run, method=without_labels(run.method))
    if asked.clear("method"):
        with errors.catch():
            recipe = chosen_recipe(run.method, own)
            if run.method.ild_teacher is not None:
                recipe = with_another_teacher(recipe)
            check_learns(recipe.stages, errors)
            if run.data.unlabelled:
                check_unlabelled(recipe.stages, run.method.recipe or run.method.method, errors)
    if asked.clear("teacher"):
        with errors.catch():
            teacher = load_classifier(run.teacher)
    if writes is not None:
        with errors.catch():
            ild_teacher = _ild_teacher(run.method.ild_teacher, teacher)
    # Without a teacher nobody knows what the data should hold: labels, or texts to write.
    if writes is not None and asked.clear(*EXAMPLES):
        with errors.catch():
            parts = parts_of(run.data, Labels.of_model(teacher.model.config) if teacher else None)
            parts, conditions = under(run.condition, parts)
    texts: Examples | None = None
    with errors.catch():
        check_supplementary(run.method)
        if writes is not None:
            texts = supplementary_texts(run.method, run.data)
            if recipe is not None:
                recipe = on_supplementary(recipe, texts is not None)
    if recipe is not None and parts is not None:
        check_steps(recipe.stages, run.training, len(parts.train), errors)
        if parts.label_space.multi:
            check_one_class(recipe.stages, run.method.recipe or run.method.method, errors)
    settings = resolved_student(run.student, recipe)
    if not asked.clear("head") or (recipe is None and run.student.head is None):
        # Which head is meant is not known, so there is nothing to say about its options.
        settings = dataclasses.replace(settings, head="fresh", reuse=None, projector=None)
    depth_clear = asked.clear("layers", "copy_layers")
    if teacher is not None:
        if not depth_clear:
            # The depth has been found error with; any that fits lets the rest be looked at.
            settings = dataclasses.replace(settings, layers=1, copy_layers=None)
        with errors.catch():
            calibration = Calibration.for_classifiers(parts.train, teacher, run.data.max_length) if parts else None
            make = partial(make_student, teacher=teacher, seed=run.training.seed, calibration=calibration)
            student, settings, starts = first_student(make, settings)
    if student is not None and teacher is not None and recipe is not None:
        _check_projector(student, teacher, recipe.stages, run.method.recipe or run.method.method, errors)
    clock = Clock(seed=run.training.seed)
    if student is not None and teacher is not None and recipe is not None and depth_clear:
        with errors.catch():
            ours, theirs = student.model.config, teacher.model.config
            other = ild_teacher.model.config if ild_teacher is not None else theirs
            for stage in recipe.stages:
                teaching = other if stage.teacher == "supplementary" else theirs
                with errors.catch():
                    check_stages([stage], sizes(ours), sizes(teaching), clock, (ours, teaching))
    errors.raise_any()
    assert recipe is not None and teacher is not None and parts is not None and student is not None
    prints = distill_prints(
        run, settings, parts=parts, teacher=teacher, ild_teacher=ild_teacher, texts=texts, recipe=recipe,
        student=student,
    )  # fmt: skip
    check_fingerprints(run.fingerprints, prints)
    depth, taught_by = sizes(student.model.config).layers, {"task": teacher, "supplementary": ild_teacher or teacher}
    resolved = dataclasses.replace(
        run,
        student=dataclasses.replace(settings, layers=depth),
        method=resolved_method(run.method),
        fingerprints=prints,
    )
    return Prepared(
        run=resolved,
        model=student.model,
        tokenizer=teacher.tokenizer,
        teacher=teacher,
        ild_teacher=ild_teacher,
        subject=Classification(parts=parts, supplementary=texts),
        conditions=conditions,
        stages=recipe.stages,
        origin=student.origin,
        starts=starts,
        start=fixed_start(asked.run.student, settings, recipe),
        calibration=calibration,
        paper="a recipe of its own" if run.method.recipe else methods.find(run.method.method).paper,
        pairs={
            match.name: pairs_of(match, depth, sizes(taught_by[stage.teacher].model.config).layers, clock)
            for stage in recipe.stages
            for match in stage.matches
            if not asks(match)
        },
    )


def _ild_teacher(name: str | None, teacher: Loaded | None) -> Loaded | None:
    """The teacher of the stage of layers, whose outputs do not matter: it needs no head, but the same tokens."""
    if name is None:
        return None
    with torch.random.fork_rng(devices=[]):
        loaded = load_classifier(name, labels=2)
    if teacher is not None:
        check_same_tokenizer(teacher, loaded)
    return loaded


def _check_projector(
    student: Student, teacher: Loaded, stages: tuple[Stage, ...], method: str, errors: ErrorList
) -> None:
    """Note a projector in the head that no loss would train."""
    reached = any(stage.hard_weight or (stage.prediction and stage.prediction.weight) for stage in stages)
    feature = any("feature" in match.represent.needs for stage in stages for match in stage.matches)
    if head_of(student.model) is not None and not reached and not feature:
        errors.add(
            f"{method}: no loss of it reaches the head's projector, which would stay random; use a student of the "
            "teacher's width, --option feature=pooled with simkd, or another method such as ild-rtc"
        )
    narrower = sizes(student.model.config).width != sizes(teacher.model.config).width
    if feature and narrower and head_of(student.model) is None:
        errors.add(
            f"{method}: the features differ in width; use --head reuse-frozen, whose projector brings them together"
        )


def run_distill(asked: Asked[Distill], out: Path, *, resume: bool = False, recipe: Recipe | None = None) -> Result:
    """Distil and write the run folder; `recipe` is one made in Python."""
    return carry_out(prepare_distill(asked, out, recipe), out, resume=resume)
