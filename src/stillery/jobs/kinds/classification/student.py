"""Building and initialising a classifier student."""

from __future__ import annotations

import dataclasses

from transformers import PreTrainedConfig

from stillery.errors import ErrorList, UserError
from stillery.jobs.calibration import Calibration, needs_importance
from stillery.jobs.config.settings import StudentSettings
from stillery.models.family import Sizes, sizes
from stillery.models.head import choose_head, reuse_head
from stillery.models.head_type import head_type
from stillery.models.load_model import Loaded, load_encoder
from stillery.models.option_words import LAYER_CHOICES
from stillery.models.slicing import is_narrower
from stillery.models.student import (
    Student,
    StudentShape,
    allowed_difference,
    build,
    build_from_checkpoint,
    checkpoint_sizes,
    student_sizes,
)

__all__ = ["make_student", "wanted_sizes"]

_INITS = (*LAYER_CHOICES, "random")


def make_student(
    settings: StudentSettings, teacher: Loaded, seed: int, calibration: Calibration | None
) -> tuple[Student, StudentSettings]:
    """Build and initialise a student; `init` and `head` must be set.

    Its settings are returned with its depth, the resolved head settings, and the layers found to be important. Without
    `calibration` nothing can be measured: another initialisation is used, and the student serves for checks only.
    """
    assert settings.init is not None and settings.head is not None
    errors = ErrorList()
    source: Loaded | None = None
    student: Student | None = None
    with errors.catch():
        source = _source(settings, settings.init, teacher)
    if settings.head == "fresh":
        given = {"--reuse": settings.reuse, "--projector": settings.projector}
        for name in (name for name, value in given.items() if value is not None):
            errors.add(f"{name} cannot go with --head fresh: nothing of the teacher's head is reused then")
    elif source is not None:
        with errors.catch():
            head = choose_head(
                source.model.config,
                settings.width or sizes(source.model.config).width,
                teacher,
                reuse=settings.reuse,
                projector=settings.projector,
                allow_custom=bool(settings.allow_custom_head),
            )
    # Building a narrower student measures importance: only if there are no other errors.
    known = None if errors.lines else calibration
    with errors.catch():
        if settings.init in _INITS:
            student = _from_layers(settings, settings.init, teacher, source or teacher, seed, known)
        elif source is not None:
            student = build_from_checkpoint(teacher=teacher, checkpoint=source, layers=settings.layers, seed=seed)
    errors.raise_any()
    assert student is not None
    settings = dataclasses.replace(settings, layers=sizes(student.model.config).layers)
    if settings.init == "important":
        settings = dataclasses.replace(settings, copy_layers=tuple(student.layers["encoder"]))
    if settings.head == "fresh":
        return student, settings
    line = reuse_head(student.model, teacher, head, freeze=settings.head == "reuse-frozen", seed=seed)
    reused = dataclasses.replace(student, origin=(*student.origin, line))
    return reused, dataclasses.replace(settings, reuse=head.reuse, projector=head.projector)


def _source(settings: StudentSettings, init: str, teacher: Loaded) -> Loaded:
    """Return the model that the student is built from; its tokenizer takes the same input as the teacher's."""
    words = head_type(teacher.model).by_token
    if init in _INITS:
        return teacher if settings.init_from is None else load_encoder(settings.init_from, words=words)
    _check_alone(settings, init)
    try:
        return load_encoder(init, words=words)
    except UserError as error:
        raise UserError(f"--init: {error} (or choose from {', '.join(_INITS)})") from None


def wanted_sizes(
    settings: StudentSettings, init: str, teacher: PreTrainedConfig, source: PreTrainedConfig, name: str
) -> dict[str, Sizes]:
    """Return the sizes of a student, by stack, from configurations alone; all errors are reported together.

    `source` is the configuration of the model it is built from, which is called `name`: its checkpoint, `init_from`, or
    the teacher.
    """
    if init not in _INITS:
        _check_alone(settings, init)
        return {"encoder": checkpoint_sizes(teacher, source, name, settings.layers)}
    errors, chosen, layers = ErrorList(), settings.copy_layers, settings.layers
    has, depth = sizes(source), sizes(teacher).layers
    if init == "random" and settings.init_from is not None:
        errors.add("--init-from cannot go with --init random: nothing is copied then")
    if chosen is not None:
        layers = len(chosen) if layers is None else layers
        if init == "random":
            errors.add("--copy-layers cannot go with --init random: nothing is copied then")
        if layers != len(chosen):
            errors.add(f"--copy-layers names {len(chosen)} layers, --layers says {layers}: leave --layers out")
        if any(not 1 <= layer <= has.layers for layer in chosen):
            errors.add(f"--copy-layers {','.join(map(str, chosen))}: {name} has layers 1 to {has.layers}")
        if settings.width is not None and settings.width > has.width:
            errors.add(f"--copy-layers cannot go with --width {settings.width}: the layers are {has.width} wide")
    if layers is None:
        errors.add(f"--layers is not given: how many of the teacher's {depth} layers should the student have?")
    elif layers > depth:
        errors.add(f"--layers {layers}: the teacher has only {depth} layers, a student cannot be deeper")
    wanted = Sizes(layers=1, width=1, heads=1, inner=1)
    with errors.catch():
        shape = StudentShape(layers=min(layers or 1, depth), width=settings.width, heads=settings.heads)
        wanted = student_sizes(shape, source, name)
    errors.raise_any()
    return {"encoder": wanted}


def _check_alone(settings: StudentSettings, init: str) -> None:
    """Raise UserError for settings of a shape beside a checkpoint, which has one."""
    given = {"--width": settings.width, "--heads": settings.heads, "--copy-layers": settings.copy_layers,
             "--init-from": settings.init_from}  # fmt: skip
    clash = [name for name, value in given.items() if value is not None]
    if clash:
        raise UserError(f"{', '.join(clash)} cannot go with --init {init}: the checkpoint decides the shape")


def _from_layers(
    settings: StudentSettings, init: str, teacher: Loaded, source: Loaded, seed: int, calibration: Calibration | None
) -> Student:
    errors, chosen, apart = ErrorList(), settings.copy_layers, False
    has = sizes(source.model.config)
    wanted = has
    with errors.catch():
        apart = allowed_difference(teacher, source) is not None
    with errors.catch():
        wanted = wanted_sizes(settings, init, teacher.model.config, source.model.config, source.name)["encoder"]
    errors.raise_any()
    importance, measured = None, needs_importance(init, chosen is not None, is_narrower(wanted, has))
    if measured and apart:
        raise UserError(
            f"--init-from {source.name}: what matters in it is measured on the teacher's tokens, and it has a "
            "tokenizer of its own; choose another --init than important, and leave --width out"
        )
    if calibration is not None and measured:
        importance = calibration.of(source)
    return build(
        teacher=teacher,
        source=source,
        wanted=wanted,
        init="even" if init == "important" and importance is None else init,
        chosen=chosen,
        importance=importance,
        seed=seed,
    )
