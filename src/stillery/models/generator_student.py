"""Construction of a smaller text generator, with fewer layers in its stacks or a smaller width."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedConfig, PreTrainedModel

from stillery.errors import ErrorList, UserError
from stillery.models.copy_weights import copy_embeddings, copy_stacks
from stillery.models.family import Sizes, kind_of, layout_of, sizes, stacks_of
from stillery.models.importance import Importance
from stillery.models.load_model import Loaded, check_same_tokenizer
from stillery.models.option_words import LAYER_CHOICES
from stillery.models.slicing import is_narrower
from stillery.models.stack_layout import GENERATORS
from stillery.models.student import Student, StudentShape, choose_layers, influence_line

__all__ = [
    "build_generator",
    "check_depths",
    "check_same_outputs",
    "check_tie",
    "choose_stack_layers",
    "freeze_embeddings",
    "generator_from_checkpoint",
    "generator_sizes",
    "is_tied",
]


def generator_sizes(shape: StudentShape, source: PreTrainedConfig, name: str) -> dict[str, Sizes]:
    """Return the student's sizes by stack, checked against its source model; all errors are reported together.

    If only a width is given, the head size is kept. Inner widths scale with the width, and the number of key heads with
    that of query heads.
    """
    errors, wanted, stacks = ErrorList(), {}, stacks_of(source)
    named = {"encoder": shape.encoder_layers, "decoder": shape.decoder_layers}
    for stack in named:
        if named[stack] is not None and len(stacks) == 1:
            errors.add(f"--{stack}-layers: {name} has one stack of layers; use --layers")
    for stack in stacks:
        layers, option = named[stack], f"--{stack}-layers"
        if layers is None:
            layers, option = shape.layers, "--layers"
        has = sizes(source, stack)
        if layers is None:
            layers = has.layers
        if layers < 1:
            errors.add(f"{option} {layers}: a student needs at least one layer")
        if layers > has.layers:
            of = "" if len(stacks) == 1 else f" in its {stack}"
            errors.add(f"{option} {layers}: {name} has only {has.layers} layers{of}, a student cannot be deeper")
        with errors.catch():
            wanted[stack] = _resized(has, layers, shape, layout_of(source, stack).rotary)
    errors.raise_any()
    return wanted


def _resized(has: Sizes, layers: int, shape: StudentShape, rotary: bool) -> Sizes:
    width = shape.width or has.width
    heads = shape.heads or (has.heads if width == has.width else max(1, width * has.heads // has.width))
    inner = has.inner if width == has.width else round(has.inner * width / has.width)
    errors = ErrorList()
    # The head size is width / heads, unless the family specifies another.
    derived = has.head_size is None or has.head_size * has.heads == has.width
    head_size = width // heads if derived else has.head_size
    # Llama requires that even where the head size is specified.
    if width % heads and (derived or rotary):
        errors.add(f"width {width} is not divisible by {heads} heads: choose --heads so that it divides --width")
    if rotary and head_size is not None and head_size % 2:
        errors.add(f"heads of {head_size}: rotary positions need an even size; choose other --heads or --width")
    key_heads = has.key_heads
    if key_heads is not None and heads != has.heads:
        key_heads = max(1, heads * key_heads // has.heads)
        if heads % key_heads:
            errors.add(f"{heads} heads cannot share {key_heads} heads of keys evenly: choose other --heads")
    errors.raise_any()
    return Sizes(
        layers=layers,
        width=width,
        heads=heads,
        inner=inner,
        head_size=None if has.head_size is None else head_size,
        key_heads=key_heads,
    )


def choose_stack_layers(
    init: str,
    wanted: Mapping[str, Sizes],
    source: PreTrainedConfig,
    chosen: Mapping[str, Sequence[int]] | None = None,
    importance: Importance | None = None,
) -> dict[str, list[int]]:
    """Return the 1-based source layers that each student stack copies: those in `chosen`, else those of `init`."""
    errors, layers = ErrorList(), {}
    for stack, size in wanted.items():
        has = sizes(source, stack).layers
        named = (chosen or {}).get(stack)
        if named is None:
            choice = init if init in LAYER_CHOICES else "even"
            layers[stack] = choose_layers(choice, size.layers, has, importance, stack)
            continue
        layers[stack] = list(named)
        given = ",".join(map(str, named))
        if len(named) != size.layers:
            errors.add(f"layers {given}: the student's {stack} has {size.layers} layers, this names {len(named)}")
        if any(not 1 <= layer <= has for layer in named):
            errors.add(f"layers {given}: the {stack} has layers 1 to {has}")
    errors.raise_any()
    return layers


def _student_config(
    source: PreTrainedConfig, wanted: Mapping[str, Sizes], layers: Mapping[str, Sequence[int]]
) -> PreTrainedConfig:
    """Return the source's configuration with the student's sizes."""
    config = copy.deepcopy(source)
    # Settings per layer are taken from the copied layers.
    for name in ("layer_types", "no_rope_layers"):
        if getattr(source, name, None):
            setattr(config, name, [getattr(source, name)[layer - 1] for layer in layers[stacks_of(source)[0]]])
    for stack, names in GENERATORS[source.model_type].sizes.items():
        before = sizes(source, stack)
        for size, name in names.items():
            if getattr(wanted[stack], size) != getattr(before, size):
                setattr(config, name, getattr(wanted[stack], size))
    for stack in wanted:
        # LayerDrop is disabled: a dropped layer has no outputs to match.
        if getattr(config, f"{stack}_layerdrop", 0):
            setattr(config, f"{stack}_layerdrop", 0.0)
    return config


def _untie(model: PreTrainedModel, source: PreTrainedModel) -> None:
    """Untie the tensors of the model that are not tied in the source, regardless of the configuration.

    T5 1.1 and FLAN checkpoints have an untied head, though transformers reads their configuration as tied.
    """
    held = dict(source.named_parameters(remove_duplicate=False))
    for name, tied_to in list(model.all_tied_weights_keys.items()):
        if held[name] is not held[tied_to]:
            path, _, leaf = name.rpartition(".")
            tied = model.get_parameter(name)
            own = torch.empty_like(tied).normal_(std=float(tied.detach().std()))
            setattr(model.get_submodule(path), leaf, nn.Parameter(own))
            model.all_tied_weights_keys.pop(name)


def _scale_head(model: PreTrainedModel) -> None:
    """Scale a new T5's untied head down by sqrt(d_model), to avoid overconfident initial predictions.

    T5 scales hidden states down before a tied head only, and initialises both kinds of heads alike.
    """
    config, head = model.config, model.get_output_embeddings()
    if config.model_type in ("t5", "mt5") and not (is_tied(model) or getattr(config, "scale_decoder_outputs", False)):
        head.weight.mul_(config.d_model**-0.5)


def is_tied(model: PreTrainedModel) -> bool:
    """Return whether a model's head is tied to its token embeddings."""
    head = model.get_output_embeddings()
    return head is not None and head.weight is model.get_input_embeddings().weight


def check_tie(source: Loaded, tie: bool | None) -> None:
    """Raise UserError if transformers could not load a student with its head tied or untied like this."""
    kind, tied = source.model.config.model_type, is_tied(source.model)
    if tie is None or tie == tied or len(stacks_of(source.model.config)) == 1:
        return
    # T5's configuration is always read as tied; untying BART's also unties the embeddings of its two stacks.
    raise UserError(
        f"--{'' if tie else 'no-'}tie-embeddings: the head of {source.name} is {'tied' if tied else 'not tied'}, and "
        f"transformers has no {kind} student that differs in that; leave it out"
    )


def build_generator(
    *,
    source: Loaded,
    wanted: Mapping[str, Sizes],
    init: str,
    chosen: Mapping[str, Sequence[int]] | None = None,
    importance: Importance | None = None,
    tie: bool | None = None,
    embeddings: bool = False,
    seed: int = 0,
) -> Student:
    """Build a student text generator of the source's family.

    Embeddings, final norms, the head, T5's relative positions (which are always in the first layer) and the generation
    config are copied with the layers. A newly tied head shares the embeddings; a newly untied one starts as a copy.

    Args:
        source: the model that the student is derived from.
        wanted: the student's sizes by stack.
        init: `random` or one of `LAYER_CHOICES`.
        chosen: the layers to copy by stack, instead of those of `init`.
        importance: the source's measures, required by `important`. With them a narrower student gets slices of the
            source's weights, without them copies of those of the same shape.
        tie: whether the head is tied to the token embeddings; None means as in the source.
        embeddings: with `random`, copy the embeddings only.
        seed: the seed of new weights.
    """
    theirs, config = source.model, source.model.config
    if config.model_type not in GENERATORS:
        raise UserError(
            f"{source.name}: a {config.model_type} model is a classifier, here a model that generates text is needed"
        )
    check_tie(source, tie)
    unchanged = tie is None or tie == is_tied(theirs)
    layers = choose_stack_layers(init, wanted, config, chosen, importance)
    shape = _student_config(config, wanted, layers)
    if not unchanged:
        shape.tie_word_embeddings = tie
    auto: Any = AutoModelForSeq2SeqLM if kind_of(config) == "encoder-decoder" else AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model: PreTrainedModel = auto.from_config(shape, dtype=torch.float32)
        if unchanged:
            _untie(model, theirs)
        _scale_head(model)
    model.generation_config = copy.deepcopy(theirs.generation_config)
    narrower = any(is_narrower(wanted[stack], sizes(config, stack)) for stack in wanted)
    origin: tuple[str, ...] = ("all weights new (random)",)
    if init != "random":
        origin = copy_stacks(model, source, layers, importance if narrower else None)
    elif embeddings:
        origin = copy_embeddings(model, source, importance if narrower else None)
    if not unchanged:
        origin = (*origin, "head tied to the token embeddings" if tie else "head not tied to the token embeddings")
    if init == "important" and importance is not None:
        measured = [stack for stack in wanted if stack not in (chosen or {})]
        origin = (*origin, *(influence_line(importance, stack, f"{stack}'s ") for stack in measured))
    return Student(model=model, origin=origin, layers={} if init == "random" else layers)


def generator_from_checkpoint(*, teacher: Loaded, checkpoint: Loaded) -> Student:
    """Return a student from another checkpoint, including its head, with the teacher's vocabulary."""
    errors = ErrorList()
    with errors.catch():
        check_same_outputs(teacher, checkpoint)
    with errors.catch():
        check_depths(teacher.model.config, checkpoint.model.config, checkpoint.name)
    errors.raise_any()
    return Student(model=checkpoint.model, origin=(f"all weights from {checkpoint.name}",))


def check_depths(teacher: PreTrainedConfig, student: PreTrainedConfig, name: str) -> None:
    """Raise UserError for a student with a stack that is deeper than the teacher's."""
    if kind_of(student) != kind_of(teacher):
        return
    errors = ErrorList()
    for stack in stacks_of(teacher):
        depth, limit = sizes(student, stack).layers, sizes(teacher, stack).layers
        if depth > limit:
            errors.add(
                f"{name} has {depth} layers in its {stack}, the teacher only {limit}: a student cannot be deeper"
            )
    errors.raise_any()


def check_same_outputs(teacher: Loaded, student: Loaded) -> None:
    """Raise UserError for models of different kinds or vocabularies, whose outputs cannot be matched by token."""
    ours, theirs = student.model.config, teacher.model.config
    if kind_of(ours) != kind_of(theirs):
        raise UserError(
            f"{student.name} is a model of the kind {kind_of(ours)}, {teacher.name} of the kind {kind_of(theirs)}: "
            "their layers do not process the same tokens; use models of one kind"
        )
    check_same_tokenizer(teacher, student)
    if ours.vocab_size != theirs.vocab_size:
        raise UserError(
            f"{student.name} predicts {ours.vocab_size} tokens, {teacher.name} {theirs.vocab_size}: predictions can "
            "only be matched over one vocabulary; use models with one"
        )


def freeze_embeddings(model: PreTrainedModel) -> str:
    """Freeze the token embeddings and weights tied to them; return a description."""
    inputs = [module for path, module in model.named_modules() if path.rpartition(".")[2] == "embed_tokens"]
    frozen = {id(module.weight): module.weight for module in (model.get_input_embeddings(), *inputs)}
    for weight in frozen.values():
        weight.requires_grad_(False)
    output = model.get_output_embeddings()
    if output is not None and id(output.weight) in frozen:
        return "token embeddings frozen, and the head that is tied to them"
    return "token embeddings frozen"
