"""The student that the settings of a distillation ask for, where it writes text."""

from __future__ import annotations

import dataclasses

from stillery.faults import Fault, Gathered
from stillery.jobs.settings import StudentSettings
from stillery.models.choices import LAYER_CHOICES
from stillery.models.generator import (
    build_generator,
    check_same_outputs,
    freeze_embeddings,
    generator_from_checkpoint,
    generator_sizes,
)
from stillery.models.load import Loaded, load_generator
from stillery.models.student import Student, StudentShape

__all__ = ["make_generator"]


def make_generator(settings: StudentSettings, teacher: Loaded, seed: int) -> Student:
    """Build and initialise a student that writes text; `init` must be set."""
    assert settings.init is not None
    faults = Gathered()
    given = {"--head": settings.head if settings.head != "fresh" else None, "--reuse": settings.reuse,
             "--projector": settings.projector, "--copy-layers": settings.copy_layers}  # fmt: skip
    for name in (name for name, value in given.items() if value is not None):
        faults.add(f"{name} is for classifiers: a model that writes text keeps its own head")
    student: Student | None = None
    with faults.catch():
        student = _made(settings, settings.init, teacher, seed)
    faults.raise_any()
    assert student is not None
    if settings.freeze_embeddings:
        line = freeze_embeddings(student.model)
        student = dataclasses.replace(student, origin=(*student.origin, line))
    return student


def _made(settings: StudentSettings, init: str, teacher: Loaded, seed: int) -> Student:
    if init not in (*LAYER_CHOICES, "random"):
        asked = {"--layers": settings.layers, "--encoder-layers": settings.encoder_layers, "--width": settings.width,
                 "--decoder-layers": settings.decoder_layers, "--heads": settings.heads,
                 "--init-from": settings.init_from}  # fmt: skip
        clash = [name for name, value in asked.items() if value is not None]
        if clash:
            raise Fault(f"{', '.join(clash)} cannot go with --init {init}: the checkpoint decides the shape")
        return generator_from_checkpoint(teacher=teacher, checkpoint=load_generator(init))
    source = teacher if settings.init_from is None else load_generator(settings.init_from)
    if source is not teacher:
        check_same_outputs(teacher, source)
    if settings.layers is None and settings.encoder_layers is None and settings.decoder_layers is None:
        raise Fault(
            "--layers is not given: how many layers should the student have? (--encoder-layers, --decoder-layers)"
        )
    shape = StudentShape(
        layers=settings.layers,
        width=settings.width,
        heads=settings.heads,
        encoder_layers=settings.encoder_layers,
        decoder_layers=settings.decoder_layers,
    )
    return build_generator(
        source=source, wanted=generator_sizes(shape, source.model.config, source.name), init=init, seed=seed
    )
