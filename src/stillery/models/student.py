"""Construction of a smaller classifier, initialised from teacher layers, from a checkpoint, or at random."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from stillery.errors import ErrorList, UserError
from stillery.models.copy_weights import copy_weights
from stillery.models.family import Sizes, family_of, sizes
from stillery.models.head_type import HeadType, head_type
from stillery.models.importance import Importance
from stillery.models.load_model import Loaded, check_same_tokenizer
from stillery.models.option_words import LAYER_CHOICES
from stillery.models.same_tokenizer import tokenizer_difference
from stillery.models.slicing import is_narrower

__all__ = [
    "Student",
    "StudentShape",
    "allowed_difference",
    "build",
    "build_from_checkpoint",
    "checkpoint_sizes",
    "choose_layers",
    "influence_line",
    "student_sizes",
]


@dataclass(frozen=True, kw_only=True)
class StudentShape:
    """The requested sizes of a student; None means as in the source.

    `layers` is the depth of every stack; an encoder-decoder's stacks may have different depths.
    """

    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    encoder_layers: int | None = None
    decoder_layers: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Student:
    """A new student, a description of the origin of its weights, and the source layers copied in each stack.

    `tokenizer` is its own, and `difference` describes how it differs from the teacher's; both are None if it is the
    teacher's.
    """

    model: PreTrainedModel
    origin: tuple[str, ...]
    layers: Mapping[str, Sequence[int]] = field(default_factory=dict)
    tokenizer: PreTrainedTokenizerBase | None = None
    difference: str | None = None


def allowed_difference(teacher: Loaded, source: Loaded) -> str | None:
    """Describe how the tokenizer of a student's source differs from the teacher's; None if it does not.

    Predictions per text can be matched across tokenizers. Predictions per token cannot: then raise UserError.
    """
    if source is teacher:
        return None
    if head_type(teacher.model).by_token:
        check_same_tokenizer(teacher, source)
    return tokenizer_difference(teacher, source)


def student_sizes(shape: StudentShape, source: PreTrainedConfig, name: str) -> Sizes:
    """Return the student's sizes, checked against its source model; all errors are reported together."""
    has, errors = sizes(source), ErrorList()
    width, layers = shape.width or has.width, has.layers if shape.layers is None else shape.layers
    # Keep the head size if only the width is given.
    heads = shape.heads or (has.heads if width == has.width else max(1, width * has.heads // has.width))
    if layers < 1:
        errors.add(f"--layers {layers}: a student needs at least one layer")
    if layers > has.layers:
        errors.add(f"--layers {layers}: {name} has only {has.layers} layers, a student cannot be deeper")
    if width % heads:
        errors.add(f"width {width} is not divisible by {heads} heads: choose --heads so that it divides --width")
    elif family_of(source, name).rotary and width // heads % 2:
        errors.add(f"heads of {width // heads}: rotary positions need an even size; choose other --heads or --width")
    errors.raise_any()
    inner = has.inner if width == has.width else round(has.inner * width / has.width)
    return Sizes(layers=layers, width=width, heads=heads, inner=inner)


def choose_layers(
    choice: str, count: int, layers: int, importance: Importance | None = None, stack: str = "encoder"
) -> list[int]:
    """Return the 1-based source layers that a student of `count` layers copies; `important` needs `importance`.

    >>> choose_layers("even", 3, 12), choose_layers("first", 3, 12), choose_layers("last", 3, 12)
    ([4, 8, 12], [1, 2, 3], [10, 11, 12])
    """
    if choice == "even":
        return [-(-i * layers // count) for i in range(1, count + 1)]
    if choice == "important":
        if importance is None:
            raise ValueError("which layers are important has to be measured first")
        return importance.layers(stack, count)
    start = 0 if choice == "first" else layers - count
    return [start + i for i in range(1, count + 1)]


def influence_line(importance: Importance, stack: str = "encoder", of: str = "") -> str:
    """Format a line with the block influence of each layer."""
    values = ", ".join(f"{layer} {value:.3f}" for layer, value in enumerate(importance.influence[stack], 1))
    return f"block influence of the {of}layers on {importance.texts} training texts: {values}"


def _student_config(
    source: PreTrainedConfig, wanted: Sizes, teacher: PreTrainedConfig, layers: Sequence[int]
) -> PreTrainedConfig:
    """Return the source's configuration with other sizes and the teacher's labels, which also set their number.

    The student's layers are of the kinds of the source's `layers`, where a family has several (ModernBERT).
    """
    config = copy.deepcopy(source)
    if getattr(source, "layer_types", None):
        config.layer_types = [source.layer_types[layer - 1] for layer in layers]
    config.num_hidden_layers = wanted.layers
    config.hidden_size = wanted.width
    config.num_attention_heads = wanted.heads
    setattr(config, family_of(source, "student").inner, wanted.inner)
    if hasattr(config, "pooler_hidden_size"):
        config.pooler_hidden_size = wanted.width
    config.id2label = copy.copy(teacher.id2label)
    config.label2id = copy.copy(teacher.label2id)
    config.problem_type = teacher.problem_type
    return config


def _new(config: PreTrainedConfig, head: HeadType, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = head.auto.from_config(config)
    return model


def build(
    *,
    teacher: Loaded,
    source: Loaded,
    wanted: Sizes,
    init: str,
    chosen: Sequence[int] | None = None,
    importance: Importance | None = None,
    seed: int = 0,
) -> Student:
    """Build a student of the source's family, with the teacher's labels and type of head, and a new classifier.

    `init` is `random` or one of `LAYER_CHOICES`; `chosen` names the layers to copy instead. Embeddings, pooler and
    weights that layers share (relative positions) are copied too. `importance` is the source's; `important` needs it.
    With it a narrower student gets slices of the source's weights, without it copies of those of the same shape.
    ALBERT's layers are one module, which is copied regardless of the chosen layers.
    """
    config = source.model.config
    has = sizes(config)
    if getattr(config, "num_hidden_groups", 1) > 1 and wanted.layers != has.layers:
        raise UserError(f"{source.name}: an ALBERT with several layer groups cannot be cut to fewer layers")
    choice = init if init in LAYER_CHOICES else "even"
    layers = list(chosen) if chosen else choose_layers(choice, wanted.layers, has.layers, importance)
    model = _new(_student_config(config, wanted, teacher.model.config, layers), head_type(teacher.model), seed)
    difference = allowed_difference(teacher, source)
    tokenizer = None if difference is None else source.tokenizer
    if init == "random":
        new = ("all weights new (random)",)
        return Student(model=model, origin=new, tokenizer=tokenizer, difference=difference)
    origin = copy_weights(model, source, layers, importance if is_narrower(wanted, has) else None)
    if init == "important" and not chosen and importance is not None:
        origin = (*origin, influence_line(importance))
    return Student(model=model, origin=origin, layers={"encoder": layers}, tokenizer=tokenizer, difference=difference)


def checkpoint_sizes(teacher: PreTrainedConfig, checkpoint: PreTrainedConfig, name: str, layers: int | None) -> Sizes:
    """Return the sizes of a student that is another checkpoint, checked against its teacher; errors come together."""
    wanted, depth = sizes(checkpoint), sizes(teacher).layers
    errors = ErrorList()
    if layers is not None and layers != wanted.layers:
        errors.add(
            f"--layers {layers}: {name} has {wanted.layers}; leave --layers out, or take some of its layers with "
            f"--init even --init-from {name}"
        )
    if wanted.layers > depth:
        errors.add(f"{name} has {wanted.layers} layers, the teacher only {depth}: a student cannot be deeper")
    errors.raise_any()
    return wanted


def build_from_checkpoint(*, teacher: Loaded, checkpoint: Loaded, layers: int | None, seed: int = 0) -> Student:
    """Build a student from another checkpoint, of any family and with any tokenizer, with a new classifier."""
    wanted, errors = sizes(checkpoint.model.config), ErrorList()
    with errors.catch():
        checkpoint_sizes(teacher.model.config, checkpoint.model.config, checkpoint.name, layers)
    with errors.catch():
        allowed_difference(teacher, checkpoint)
    errors.raise_any()
    return build(teacher=teacher, source=checkpoint, wanted=wanted, init="first", seed=seed)
