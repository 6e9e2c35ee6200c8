"""The student that the settings of a distillation ask for."""

from __future__ import annotations

from stillery.faults import Fault, Gathered
from stillery.jobs.settings import StudentSettings
from stillery.models.choices import LAYER_CHOICES
from stillery.models.family import family_of, sizes
from stillery.models.head import check_reuse, reuse_head
from stillery.models.load import Loaded, check_same_tokenizer, load_encoder
from stillery.models.student import Student, StudentShape, build, build_from_checkpoint, student_sizes

__all__ = ["make_student"]

_INITS = (*LAYER_CHOICES, "random")


def make_student(settings: StudentSettings, teacher: Loaded, seed: int) -> Student:
    """Build and initialise a student; `init` and `head` must be set."""
    assert settings.init is not None and settings.head is not None
    if settings.init in _INITS:
        student = _from_layers(settings, settings.init, teacher, seed)
    else:
        student = _from_checkpoint(settings, settings.init, teacher, seed)
    if settings.head == "fresh":
        return student
    check_reuse(student.model.config.model_type, sizes(student.model.config).width, teacher)
    line = reuse_head(student.model, teacher, freeze=settings.head == "reuse-frozen")
    return Student(model=student.model, origin=(*student.origin, line))


def _from_checkpoint(settings: StudentSettings, init: str, teacher: Loaded, seed: int) -> Student:
    given = {"--width": settings.width, "--heads": settings.heads, "--copy-layers": settings.copy_layers,
             "--init-from": settings.init_from}  # fmt: skip
    clash = [name for name, value in given.items() if value is not None]
    if clash:
        raise Fault(f"{', '.join(clash)} cannot go with --init {init}: the checkpoint decides the shape")
    try:
        checkpoint = load_encoder(init)
    except Fault as fault:
        raise Fault(f"--init: {fault} (or choose from {', '.join(_INITS)})") from None
    return build_from_checkpoint(teacher=teacher, checkpoint=checkpoint, layers=settings.layers, seed=seed)


def _from_layers(settings: StudentSettings, init: str, teacher: Loaded, seed: int) -> Student:
    faults, chosen, layers = Gathered(), settings.copy_layers, settings.layers
    source = teacher
    if settings.init_from is not None:
        with faults.catch():
            source = load_encoder(settings.init_from)
            family_of(source.model.config, source.name)
            check_same_tokenizer(teacher, source)
    has, depth = sizes(source.model.config), sizes(teacher.model.config).layers
    if chosen is not None:
        layers = len(chosen) if layers is None else layers
        if init == "random":
            faults.add("--copy-layers cannot go with --init random: nothing is copied then")
        if layers != len(chosen):
            faults.add(f"--copy-layers names {len(chosen)} layers, --layers says {layers}: leave --layers out")
        if any(not 1 <= layer <= has.layers for layer in chosen):
            faults.add(f"--copy-layers {','.join(map(str, chosen))}: {source.name} has layers 1 to {has.layers}")
        if settings.width not in (None, has.width):
            faults.add(f"--copy-layers cannot go with --width {settings.width}: the layers are {has.width} wide")
    if layers is None:
        faults.add(f"--layers is not given: how many of the teacher's {depth} layers should the student have?")
    elif layers > depth:
        faults.add(f"--layers {layers}: the teacher has only {depth} layers, a student cannot be deeper")
    shape = StudentShape(layers=min(layers or 1, depth), width=settings.width, heads=settings.heads)
    with faults.catch():
        wanted = student_sizes(shape, source.model.config, source.name)
    faults.raise_any()
    return build(teacher=teacher, source=source, wanted=wanted, init=init, chosen=chosen, seed=seed)
