"""Distil a fine-tuned teacher into a smaller student."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from stillery import methods
from stillery.jobs.chosen_recipe import (
    check_learns,
    check_steps,
    check_supplementary,
    chosen_recipe,
    on_supplementary,
    with_another_teacher,
)
from stillery.jobs.config.resolved import resolved_method, resolved_student
from stillery.jobs.config.run_file import trained_length
from stillery.jobs.config.settings import Asked, Distill
from stillery.jobs.fingerprints import distill_fingerprints
from stillery.jobs.finish import Result
from stillery.jobs.first_checks import check_first
from stillery.jobs.from_python import FromPython
from stillery.jobs.kinds.find import kind_of_model
from stillery.jobs.prepare import (
    Context,
    check_fingerprints,
    checked,
    fits_the_kind,
    has_a_place,
    needs,
    reads_its_data,
    tracks,
)
from stillery.jobs.prepared import Prepared
from stillery.jobs.run import carry_out
from stillery.jobs.student_start import first_student, fixed_start
from stillery.models.family import stack_sizes
from stillery.models.load_model import Loaded
from stillery.models.student import Student
from stillery.recipe import Clock, Pairs, Recipe, Stage
from stillery.similarity_pairing import asks
from stillery.train.recipe_checks import check_stages
from stillery.train.step_plan import pairs_of, sizes_in

__all__ = ["prepare_distill", "run_distill"]

_DEPTHS = ("layers", "encoder_layers", "decoder_layers", "copy_layers", "copy_encoder_layers", "copy_decoder_layers")


@needs(settings=("teacher",))
def is_of_a_kind(context: Context) -> None:
    """Read the teacher's configuration to find the kind of model."""
    context.kind = kind_of_model(context.run.teacher, context.run.data)


@needs("kind", settings=("teacher",))
def loads_its_teacher(context: Context) -> None:
    """Load the teacher, which has to be trained, and inherit its input settings."""
    assert context.kind is not None
    context.model = context.kind.as_set(context.kind.load(context.run.teacher), context.run.data)
    context.run, context.notes = context.kind.inherit(context.asked, context.errors)


@needs(settings=("method",))
def has_a_recipe(context: Context) -> None:
    """Build the recipe from the method's options and switches; every stage needs a loss."""
    kind, teacher = context.kind, context.model
    if kind is not None:
        context.run = kind.method(context.run, teacher)
    method = context.run.method
    recipe = chosen_recipe(method, context.own)
    if method.ild_teacher is not None:
        recipe = with_another_teacher(recipe)
    if kind is not None and teacher is not None:
        recipe = kind.recipe(recipe, context.run, teacher)
    context.recipe = recipe
    check_learns(recipe.stages, context.errors)


@needs("kind")
def loads_the_teacher_of_its_layers(context: Context) -> None:
    """Load another teacher for the hidden-state stage, which needs the same tokens as the first."""
    assert context.kind is not None
    if context.run.method.ild_teacher is not None:
        context.layers_teacher = context.kind.load_for_layers(context.run.method.ild_teacher, context.model)


@needs()
def reads_its_texts(context: Context) -> None:
    """Read the unlabelled texts of the hidden-state stage, which the recipe has to have."""
    check_supplementary(context.run.method)
    if context.kind is None:
        return
    if context.run.texts is not None:
        context.texts = context.kind.read_texts(context.run.texts)
    if context.recipe is not None:
        context.recipe = on_supplementary(context.recipe, context.texts is not None)


@needs("recipe", "read")
def has_steps_enough(context: Context) -> None:
    """Check that the run has a step for every stage."""
    assert context.recipe is not None and context.read is not None
    check_steps(context.recipe.stages, context.run.training, len(context.read.splits.train), context.errors)


@needs("kind", "model")
def makes_its_student(context: Context) -> None:
    """Make the student from the teacher; where settings are wrong, a substitute allows the rest to be checked."""
    kind, teacher, asked = context.kind, context.model, context.asked
    assert kind is not None and teacher is not None
    settings = resolved_student(context.run.student, context.recipe, start=kind.start)
    if not asked.clear("head") or (context.recipe is None and context.run.student.head is None):
        # The head is unknown, so its options cannot be checked.
        settings = dataclasses.replace(settings, head="fresh", reuse=None, projector=None)
    if not asked.clear(*_DEPTHS):
        # The depth is reported as an error already; any that fits allows the rest to be checked.
        settings = dataclasses.replace(settings, **dict.fromkeys(_DEPTHS) | {"layers": 1})
    if context.read is not None:
        context.calibration = kind.calibration(context.read.splits.train, teacher, context.run.inputs)
    seed, calibration = context.run.training.seed, context.calibration
    make = partial(kind.make_student, teacher=teacher, seed=seed, calibration=calibration)
    context.student, context.student_settings, context.starts = first_student(make, settings, kind.start)


@needs("kind", "model", "student")
def has_room_for_its_inputs(context: Context) -> None:
    """Check that examples, and the texts of the hidden-state stage, fit into the positions of all models."""
    kind, teacher, student = context.kind, context.model, context.student
    assert kind is not None and teacher is not None and student is not None
    if student.tokenizer is not None:
        _reads_apart(context, student, student.tokenizer)
        return
    loaded = [one.model.config for one in (teacher, context.layers_teacher) if one is not None]
    configs = [loaded[0], student.model.config, *loaded[1:]]
    context.encoding = kind.encoding(context.run.inputs, configs, teacher.tokenizer)
    if context.run.texts is not None:
        context.texts_encoding = kind.encoding(context.run.texts, configs, teacher.tokenizer)


def _reads_apart(context: Context, student: Student, tokenizer: PreTrainedTokenizerBase) -> None:
    """Tokenise for each model with its own tokenizer, up to the length that it was trained with.

    The lengths are those of the teacher's run and of the run that made the student's checkpoint; else --max-length.
    """
    kind, teacher, settings = context.kind, context.model, context.student_settings
    assert kind is not None and teacher is not None and settings is not None
    source = settings.init_from or settings.init or ""
    own, theirs = trained_length(source), trained_length(context.run.teacher)
    if own and "max_length" not in context.asked.given:
        context.run = dataclasses.replace(context.run, data=dataclasses.replace(context.run.data, **own))
    inputs = context.run.inputs
    teachers = dataclasses.replace(inputs, data=dataclasses.replace(inputs.data, **theirs))
    context.encoding = kind.encoding(inputs, [student.model.config], tokenizer)
    context.teacher_encoding = kind.encoding(teachers, [teacher.model.config], teacher.tokenizer)
    lengths = [one.max_length for one in (context.encoding, context.teacher_encoding)]
    context.notes += (
        f"each model reads texts with its own tokenizer: the student as {source}, up to {lengths[0]} tokens, the "
        f"teacher up to {lengths[1]}",
    )


@needs("recipe", "model", "student", settings=_DEPTHS)
def layers_fit(context: Context) -> None:
    """Check that the layers paired by the recipe exist in both models, and that its parts suit these models."""
    recipe, teacher, student = context.recipe, context.model, context.student
    assert recipe is not None and teacher is not None and student is not None
    ours, clock = student.model.config, Clock(seed=context.run.training.seed)
    for stage in recipe.stages:
        theirs = _teacher_of(stage, teacher, context.layers_teacher).model.config
        with context.errors.catch():
            check_stages([stage], stack_sizes(ours), stack_sizes(theirs), clock, (ours, theirs))


_CHECKS = (
    is_of_a_kind,
    has_a_place,
    tracks,
    fits_the_kind,
    loads_its_teacher,
    has_a_recipe,
    loads_the_teacher_of_its_layers,
    reads_its_data,
    reads_its_texts,
    has_steps_enough,
    makes_its_student,
    has_room_for_its_inputs,
    layers_fit,
)


def prepare_distill(
    asked: Asked[Distill],
    out: Path | None = None,
    own: Recipe | None = None,
    given: FromPython | None = None,
    *,
    resume: bool = False,
) -> Prepared:
    """Load and check everything for a distillation; all errors are reported together.

    `own` is a recipe made in Python, `given` holds the other objects passed from Python; with `resume` the run in `out`
    continues.
    """
    given = given or FromPython()
    found = checked(asked, _CHECKS, out, own)
    run, kind, read, teacher, student = found.run, found.kind, found.read, found.model, found.student
    recipe, settings = found.recipe, found.student_settings
    assert kind is not None and read is not None and teacher is not None and student is not None
    assert recipe is not None and settings is not None
    prints = distill_fingerprints(found, settings)
    check_fingerprints(run.fingerprints, prints, out if resume else None)
    resolved = dataclasses.replace(run, student=settings, method=resolved_method(run.method), fingerprints=prints)
    return Prepared(
        run=given.named(kind.written_out(resolved, found.encoding)),
        kind=kind,
        read=read,
        encoding=found.encoding,
        model=student.model,
        tokenizer=student.tokenizer or teacher.tokenizer,
        teacher=teacher,
        teacher_encoding=found.teacher_encoding,
        layers_teacher=found.layers_teacher,
        texts=found.texts,
        texts_encoding=found.texts_encoding,
        conditions=found.conditions,
        policy=kind.policy(run, student.model, teacher, found.encoding),
        stages=recipe.stages,
        origin=student.origin,
        starts=found.starts,
        start=fixed_start(asked.run.student, settings, recipe),
        calibration=found.calibration,
        paper="a recipe of its own" if run.method.recipe else methods.find(run.method.method).paper,
        pairs=_pairs(recipe.stages, found),
        notes=found.notes,
        from_python=given,
    )


def _teacher_of(stage: Stage, teacher: Loaded, other: Loaded | None) -> Loaded:
    return other if stage.teacher == "supplementary" and other is not None else teacher


def _pairs(stages: tuple[Stage, ...], context: Context) -> dict[str, Pairs]:
    """Return the layer pairs of every match at the start, except those that depend on a similarity not yet measured."""
    assert context.student is not None and context.model is not None
    ours, clock = stack_sizes(context.student.model.config), Clock(seed=context.run.training.seed)
    found = {}
    for stage in stages:
        theirs = stack_sizes(_teacher_of(stage, context.model, context.layers_teacher).model.config)
        for match in (match for match in stage.matches if not asks(match)):
            depths = [sizes_in(each, match.stack).layers for each in (ours, theirs)]
            found[match.name] = pairs_of(match, depths[0], depths[1], clock)
    return found


def run_distill(
    asked: Asked[Distill],
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    recipe: Recipe | None = None,
    given: FromPython | None = None,
) -> Result:
    """Distil and write the run folder, replacing an earlier run with `overwrite`.

    `recipe` is one made in Python, `given` holds the other objects passed from Python.
    """
    check_first(asked, out, resume=resume, overwrite=overwrite)
    prepared = prepare_distill(asked, out, recipe, given, resume=resume)
    return carry_out(prepared, out, resume=resume, overwrite=overwrite)
