"""Building and initialising a text generation student."""

from __future__ import annotations

import dataclasses

from transformers import PreTrainedConfig

from stillery.errors import ErrorList, UserError
from stillery.jobs.calibration import Calibration, needs_importance
from stillery.jobs.config.settings import StudentSettings
from stillery.models.family import Sizes, sizes, stack_sizes, stacks_of
from stillery.models.generator_student import (
    build_generator,
    check_depths,
    check_same_outputs,
    check_tie,
    freeze_embeddings,
    generator_from_checkpoint,
    generator_sizes,
    is_tied,
)
from stillery.models.load_model import Loaded, load_generator
from stillery.models.option_words import LAYER_CHOICES
from stillery.models.slicing import is_narrower
from stillery.models.student import Student, StudentShape

__all__ = ["make_generator", "wanted_sizes"]

Lists = dict[str, tuple[int, ...]]
"""The layers to copy, by stack."""


def make_generator(
    settings: StudentSettings, teacher: Loaded, seed: int, calibration: Calibration | None
) -> tuple[Student, StudentSettings]:
    """Build and initialise a student that generates text; `init` must be set.

    Its settings are returned with its depths, and with the layers that were found to be important. Without
    `calibration` nothing can be measured: another initialisation is used, and the student serves for checks only.
    """
    assert settings.init is not None
    errors = ErrorList()
    if settings.head != "fresh":
        errors.add("--head is for classifiers: a model that generates text keeps its own head")
    student: Student | None = None
    with errors.catch():
        student = _made(settings, settings.init, teacher, seed, calibration)
    errors.raise_any()
    assert student is not None
    if settings.freeze_embeddings:
        line = freeze_embeddings(student.model)
        student = dataclasses.replace(student, origin=(*student.origin, line))
    return student, _written_out(settings, student)


def _made(settings: StudentSettings, init: str, teacher: Loaded, seed: int, calibration: Calibration | None) -> Student:
    if init not in (*LAYER_CHOICES, "random"):
        return _from_checkpoint(settings, init, teacher)
    source, errors = teacher if settings.init_from is None else load_generator(settings.init_from), ErrorList()
    with errors.catch():
        if source is not teacher:
            check_same_outputs(teacher, source)
    with errors.catch():
        check_tie(source, settings.tie_embeddings)
    with errors.catch():
        _check_embeddings(settings, init, source)
    chosen: Lists = {}
    with errors.catch():
        chosen = _chosen(settings, init, source.model.config, source.name)
    errors.raise_any()
    wanted = _sized(settings, chosen, source.model.config, source.name)
    importance, narrower = None, any(is_narrower(wanted[one], sizes(source.model.config, one)) for one in wanted)
    embeddings, named = bool(settings.copy_embeddings), chosen.keys() == wanted.keys()
    if calibration is not None and (needs_importance(init, named, narrower) or (embeddings and narrower)):
        importance = calibration.of(source)
    return build_generator(
        source=source,
        wanted=wanted,
        init="even" if init == "important" and importance is None else init,
        chosen=chosen,
        importance=importance,
        tie=settings.tie_embeddings,
        embeddings=embeddings and (importance is not None or not narrower),
        seed=seed,
    )


def wanted_sizes(
    settings: StudentSettings, init: str, teacher: PreTrainedConfig, source: PreTrainedConfig, name: str
) -> dict[str, Sizes]:
    """Return the sizes of a student, by stack, from configurations alone; all errors are reported together.

    `source` is the configuration of the model it is built from, which is called `name`: its checkpoint, `init_from`, or
    the teacher.
    """
    if init not in (*LAYER_CHOICES, "random"):
        check_depths(teacher, source, name)
        return stack_sizes(source)
    return _sized(settings, _chosen(settings, init, source, name), source, name)


def _sized(settings: StudentSettings, chosen: Lists, source: PreTrainedConfig, name: str) -> dict[str, Sizes]:
    one = len(stacks_of(source)) == 1
    counts = {stack: len(layers) for stack, layers in chosen.items()}
    shape = StudentShape(
        layers=counts.get("decoder", settings.layers) if one else settings.layers,
        width=settings.width,
        heads=settings.heads,
        encoder_layers=settings.encoder_layers if one else counts.get("encoder", settings.encoder_layers),
        decoder_layers=settings.decoder_layers if one else counts.get("decoder", settings.decoder_layers),
    )
    if shape.layers is None and shape.encoder_layers is None and shape.decoder_layers is None:
        raise UserError(
            "--layers is not given: how many layers should the student have? (--encoder-layers, --decoder-layers)"
        )
    return generator_sizes(shape, source, name)


def _from_checkpoint(settings: StudentSettings, init: str, teacher: Loaded) -> Student:
    checkpoint = load_generator(init)
    config, stacks = checkpoint.model.config, stacks_of(checkpoint.model.config)
    depths = {stack: sizes(config, stack).layers for stack in stacks}
    is_what = {"layers": depths["decoder"] if len(set(depths.values())) == 1 else None, "width": sizes(config).width,
               "heads": sizes(config).heads, "tie_embeddings": is_tied(checkpoint.model), "copy_embeddings": False,
               **{f"{stack}_layers": depth for stack, depth in depths.items() if len(depths) > 1}}  # fmt: skip
    names = ("layers", "encoder_layers", "width", "decoder_layers", "heads", "init_from", "copy_layers",
             "copy_encoder_layers", "copy_decoder_layers", "tie_embeddings", "copy_embeddings")  # fmt: skip
    clash = [name for name in names if getattr(settings, name) not in (None, is_what.get(name))]
    if clash:
        said = ", ".join(f"--{name.replace('_', '-')}" for name in clash)
        raise UserError(f"{said} cannot go with --init {init}: the checkpoint decides the shape")
    return generator_from_checkpoint(teacher=teacher, checkpoint=checkpoint)


def _chosen(settings: StudentSettings, init: str, config: PreTrainedConfig, source: str) -> Lists:
    """Return the layers given for copying, by stack; a stack's own list takes precedence over `--copy-layers`."""
    errors, chosen = ErrorList(), Lists()
    stacks = stacks_of(config)
    lists = {"encoder": settings.copy_encoder_layers, "decoder": settings.copy_decoder_layers}
    depths = {"encoder": settings.encoder_layers, "decoder": settings.decoder_layers}
    for stack in (stack for stack in lists if lists[stack] is not None and len(stacks) == 1):
        errors.add(f"--copy-{stack}-layers: {source} has one stack of layers; use --copy-layers")
    for stack in stacks:
        layers, option = lists[stack], f"--copy-{stack}-layers"
        if layers is None:
            layers, option = settings.copy_layers, "--copy-layers"
        if layers is None:
            continue
        chosen[stack] = layers
        size, depth, asked = sizes(config, stack), depths[stack], f"--{stack}-layers"
        if depth is None or len(stacks) == 1:
            depth, asked = settings.layers, "--layers"
        apart = option == "--copy-layers" and len(stacks) > 1
        cure = "; name them with --copy-encoder-layers and --copy-decoder-layers" if apart else ""
        of = "" if len(stacks) == 1 else f" in its {stack}{cure}"
        if apart and len({sizes(config, one).layers for one in stacks}) == 1:
            # Both stacks are equally deep: one message is enough, and separate lists would not help.
            of = " in each stack"
        if any(layer > size.layers for layer in layers):
            errors.add(f"{option} {','.join(map(str, layers))}: {source} has layers 1 to {size.layers}{of}")
        elif len(layers) > size.layers:
            errors.add(f"{option} names {len(layers)} layers, {source} has only {size.layers}{of}")
        if depth not in (None, len(layers)):
            out = cure if asked != "--layers" and apart else f": leave {asked} out"
            errors.add(f"{option} names {len(layers)} layers, {asked} says {depth}{out}")
        if init == "random":
            errors.add(f"{option} cannot go with --init random: nothing is copied then")
        if settings.width is not None and settings.width > size.width:
            errors.add(f"{option} cannot go with --width {settings.width}: the layers are {size.width} wide")
    errors.raise_any()
    return chosen


def _check_embeddings(settings: StudentSettings, init: str, source: Loaded) -> None:
    """Raise UserError for `--copy-embeddings` where embeddings cannot be copied, or are copied anyway."""
    if not settings.copy_embeddings:
        return
    if init != "random":
        raise UserError(f"--copy-embeddings is for --init random: --init {init} copies them anyway")
    width = sizes(source.model.config).width
    if settings.width is not None and settings.width > width:
        raise UserError(f"--copy-embeddings cannot go with --width {settings.width}: the embeddings are {width} wide")


def _written_out(settings: StudentSettings, student: Student) -> StudentSettings:
    """Return the settings with the depth of each stack where none was given, and with the important layers."""
    config = student.model.config
    if settings.init == "important":
        found = {stack: tuple(layers) for stack, layers in student.layers.items()}
        if len(found) == 1:
            settings = dataclasses.replace(settings, copy_layers=next(iter(found.values())))
        else:
            settings = dataclasses.replace(
                settings, copy_layers=None, copy_encoder_layers=found["encoder"], copy_decoder_layers=found["decoder"]
            )
    depths = {stack: sizes(config, stack).layers for stack in stacks_of(config)}
    if settings.layers is not None:
        return settings
    if len(depths) == 1:
        return dataclasses.replace(settings, layers=depths["decoder"])
    return dataclasses.replace(settings, encoder_layers=depths["encoder"], decoder_layers=depths["decoder"])
