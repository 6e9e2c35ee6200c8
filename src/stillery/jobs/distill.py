"""Distil a fine-tuned teacher into a smaller student."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from stillery import methods
from stillery.data.examples import Parts
from stillery.data.labels import Labels
from stillery.faults import Fault, Gathered
from stillery.jobs.finish import Result
from stillery.jobs.inputs import parts_of
from stillery.jobs.run import Prepared, carry_out, check_fingerprints, check_training, data_fingerprint
from stillery.jobs.settings import Distill, MethodSettings, StudentSettings
from stillery.models.choices import LAYER_CHOICES
from stillery.models.family import family_of, sizes
from stillery.models.head import check_reuse, reuse_head
from stillery.models.load import Loaded, check_same_tokenizer, fingerprint, load_classifier, load_encoder
from stillery.models.student import Student, StudentShape, build, build_from_checkpoint, student_sizes
from stillery.recipe import Clock, Recipe
from stillery.train.objective import check_stages, pairs_of

__all__ = ["prepare_distill", "run_distill"]


def prepare_distill(run: Distill) -> Prepared:
    """Load and check everything; all faults are reported together."""
    faults = Gathered()
    recipe: Recipe | None = None
    teacher: Loaded | None = None
    parts: Parts | None = None
    student: Student | None = None
    check_training(run, faults)
    with faults.catch():
        recipe = methods.build(run.method.method, run.method.method_options())
    with faults.catch():
        teacher = load_classifier(run.teacher)
    with faults.catch():
        parts = parts_of(run.data, Labels.of_model(teacher.model.config) if teacher else None)
    settings = dataclasses.replace(
        run.student,
        init=run.student.init or (recipe.init if recipe else "even"),
        head=run.student.head or (recipe.head if recipe else "fresh"),
    )
    if teacher is not None:
        with faults.catch():
            student = _student(settings, teacher, run.training.seed)
    if student is not None and teacher is not None and recipe is not None:
        with faults.catch():
            clock = Clock(seed=run.training.seed)
            check_stages(recipe.stages, sizes(student.model.config), sizes(teacher.model.config), clock)
    faults.raise_any()
    assert recipe is not None and teacher is not None and parts is not None and student is not None
    prints = {"data": data_fingerprint(parts), "teacher": fingerprint(teacher)}
    check_fingerprints(run.fingerprints, prints)
    depths = sizes(student.model.config).layers, sizes(teacher.model.config).layers
    resolved = dataclasses.replace(
        run,
        student=dataclasses.replace(settings, layers=depths[0]),
        method=_resolved_method(run.method),
        fingerprints=prints,
    )
    return Prepared(
        run=resolved,
        model=student.model,
        tokenizer=teacher.tokenizer,
        teacher=teacher,
        parts=parts,
        stages=recipe.stages,
        origin=student.origin,
        paper=methods.find(run.method.method).paper,
        pairs={
            match.name: pairs_of(match, *depths, Clock(seed=run.training.seed))
            for stage in recipe.stages
            for match in stage.matches
        },
    )


def _resolved_method(method: MethodSettings) -> MethodSettings:
    """The method with every option written out, so that a later change of defaults does not change the run."""
    options = methods.find(method.method).options | method.method_options()
    options = {name: value for name, value in options.items() if value is not None}
    return MethodSettings(
        method=method.method,
        hard_weight=options.pop("hard_weight", None),
        temperature=options.pop("temperature", None),
        options=options,
    )


def _student(settings: StudentSettings, teacher: Loaded, seed: int) -> Student:
    """Build and initialise the student the settings ask for."""
    assert settings.init is not None and settings.head is not None
    if settings.init not in (*LAYER_CHOICES, "random"):
        student = _checkpoint_student(settings, teacher, seed)
    else:
        student = _layers_student(settings, teacher, seed)
    if settings.head == "fresh":
        return student
    check_reuse(student.model.config.model_type, sizes(student.model.config).width, teacher)
    line = reuse_head(student.model, teacher, freeze=settings.head == "reuse-frozen")
    return Student(model=student.model, origin=(*student.origin, line))


def _checkpoint_student(settings: StudentSettings, teacher: Loaded, seed: int) -> Student:
    assert settings.init is not None
    given = {"--width": settings.width, "--heads": settings.heads, "--copy-layers": settings.copy_layers,
             "--init-from": settings.init_from}  # fmt: skip
    clash = [name for name, value in given.items() if value is not None]
    if clash:
        raise Fault(f"{', '.join(clash)} cannot go with --init {settings.init}: the checkpoint decides the shape")
    try:
        checkpoint = load_encoder(settings.init)
    except Fault as fault:
        known = ", ".join((*LAYER_CHOICES, "random"))
        raise Fault(f"--init: {fault.lines[0]} (or one of {known})") from None
    return build_from_checkpoint(teacher=teacher, checkpoint=checkpoint, layers=settings.layers, seed=seed)


def _layers_student(settings: StudentSettings, teacher: Loaded, seed: int) -> Student:
    assert settings.init is not None
    faults, chosen, layers = Gathered(), settings.copy_layers, settings.layers
    source = teacher
    if settings.init_from is not None:
        with faults.catch():
            source = load_encoder(settings.init_from)
            check_same_tokenizer(teacher, source)
    config = source.model.config
    family_of(config, source.name)
    has = sizes(config)
    if chosen is not None:
        if settings.init == "random":
            faults.add("--copy-layers cannot go with --init random: nothing is copied then")
        if layers is not None and layers != len(chosen):
            faults.add(f"--copy-layers names {len(chosen)} layers, --layers says {layers}")
        if any(not 1 <= layer <= has.layers for layer in chosen):
            faults.add(f"--copy-layers {','.join(map(str, chosen))}: {source.name} has layers 1 to {has.layers}")
        if settings.width not in (None, has.width):
            faults.add(f"--copy-layers cannot go with --width {settings.width}: the layers are {has.width} wide")
        layers = layers or len(chosen)
    if layers is None:
        faults.add(f"--layers is not given: how many of the teacher's {has.layers} layers should the student have?")
        faults.raise_any()
    assert layers is not None
    depth = sizes(teacher.model.config).layers
    if layers > depth:
        faults.add(f"--layers {layers}: the teacher has only {depth} layers, a student cannot be deeper")
    with faults.catch():
        shape = StudentShape(layers=min(layers, depth), width=settings.width, heads=settings.heads)
        wanted = student_sizes(shape, config, source.name)
    faults.raise_any()
    return build(teacher=teacher, source=source, wanted=wanted, init=settings.init, chosen=chosen, seed=seed)


def run_distill(run: Distill, out: Path, *, resume: bool = False) -> Result:
    """Distil and write the run folder."""
    return carry_out(prepare_distill(run), out, resume=resume)
