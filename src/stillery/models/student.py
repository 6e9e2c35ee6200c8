"""Build a smaller model and initialise it from teacher layers, from a checkpoint, or at random."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel

from stillery.faults import Fault, Gathered
from stillery.models.family import Family, Sizes, family_of, sizes
from stillery.models.load import Loaded, check_same_tokenizer

__all__ = ["Student", "StudentShape", "build", "build_from_checkpoint", "choose_layers", "student_sizes"]


@dataclass(frozen=True, kw_only=True)
class StudentShape:
    """What the student should be; None means as the source has it."""

    layers: int
    width: int | None = None
    heads: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Student:
    """A new student and, in words, where its weights came from."""

    model: PreTrainedModel
    origin: tuple[str, ...]


def student_sizes(shape: StudentShape, source: PreTrainedConfig, name: str) -> Sizes:
    """The student's sizes, checked against the model it is made from; every fault is reported."""
    has, faults = sizes(source), Gathered()
    width = shape.width or has.width
    # Keep the size of a head where only the width is given.
    heads = shape.heads or (has.heads if width == has.width else max(1, width * has.heads // has.width))
    if shape.layers < 1:
        faults.add(f"--layers {shape.layers}: a student needs at least one layer")
    if shape.layers > has.layers:
        faults.add(f"--layers {shape.layers}: {name} has only {has.layers} layers, a student cannot be deeper")
    if width % heads:
        faults.add(f"width {width} is not divisible by {heads} heads: choose --heads so that it divides --width")
    faults.raise_any()
    inner = has.inner if width == has.width else round(has.inner * width / has.width)
    return Sizes(layers=shape.layers, width=width, heads=heads, inner=inner)


def choose_layers(choice: str, count: int, layers: int) -> list[int]:
    """The 1-based source layers a student of `count` layers copies.

    >>> choose_layers("even", 3, 12), choose_layers("first", 3, 12), choose_layers("last", 3, 12)
    ([4, 8, 12], [1, 2, 3], [10, 11, 12])
    """
    if choice == "even":
        return [-(-i * layers // count) for i in range(1, count + 1)]
    start = 0 if choice == "first" else layers - count
    return [start + i for i in range(1, count + 1)]


def _student_config(source: PreTrainedConfig, wanted: Sizes, teacher: PreTrainedConfig) -> PreTrainedConfig:
    config = copy.deepcopy(source)
    config.num_hidden_layers = wanted.layers
    config.hidden_size = wanted.width
    config.num_attention_heads = wanted.heads
    setattr(config, family_of(source, "student").inner, wanted.inner)
    if hasattr(config, "pooler_hidden_size"):
        config.pooler_hidden_size = wanted.width
    config.dtype = torch.float32
    _take_labels(config, teacher)
    return config


def _take_labels(config: PreTrainedConfig, teacher: PreTrainedConfig) -> None:
    # Naming the labels sets their number too.
    config.id2label = copy.copy(teacher.id2label)
    config.label2id = copy.copy(teacher.label2id)
    config.problem_type = teacher.problem_type


def _new(config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForSequenceClassification.from_config(config)
    return model


def _body_name(key: str, prefix: str) -> str:
    return key.removeprefix(f"{prefix}.")


def _source_weights(source: Loaded) -> dict[str, Tensor]:
    """The source's trained tensors, named from the base model on, the head's by their own names."""
    prefix = source.model.base_model_prefix
    return {
        _body_name(key, prefix): value for key, value in source.model.state_dict().items() if key not in source.missing
    }


def _group(name: str, family: Family, prefix: str) -> str:
    """Which piece of a model a tensor belongs to: embeddings, layer i (0-based), pooler, classifier, or other."""

    def inside(path: str) -> bool:
        return name == path or name.startswith(f"{path}.")

    if inside(family.layers):
        return f"layer {name.removeprefix(family.layers + '.').split('.')[0]}"
    if inside(_body_name(family.pooler, prefix)):
        return "pooler"
    if inside(family.classifier):
        return "classifier"
    return "embeddings" if any(inside(path) for path in family.embeddings) else "other"


def _copy(model: PreTrainedModel, weights: Mapping[str, Tensor], chosen: Sequence[int], family: Family) -> set[str]:
    """Copy every group whose tensors are all there with the right shapes; return the groups copied."""
    prefix = model.base_model_prefix
    groups: dict[str, list[tuple[Tensor, Tensor | None]]] = {}
    for key, tensor in model.state_dict().items():
        name = _body_name(key, prefix)
        group = _group(name, family, prefix)
        if group.startswith("layer ") and not family.shared:
            index = int(group.split()[1])
            rest = name.removeprefix(f"{family.layers}.{index}.")
            name = f"{family.layers}.{chosen[index] - 1}.{rest}"
        groups.setdefault(group, []).append((tensor, weights.get(name)))
    copied = set()
    for group, tensors in groups.items():
        if group != "classifier" and all(new is not None and new.shape == old.shape for old, new in tensors):
            for old, new in tensors:
                assert new is not None
                old.copy_(new)
            copied.add(group)
    return copied


def build(
    *, teacher: Loaded, source: Loaded, wanted: Sizes, init: str, chosen: Sequence[int] | None = None, seed: int = 0
) -> Student:
    """A student of the source's family with `wanted` sizes; labels are the teacher's, the classifier is always new.

    `init` is `random` or one of `LAYER_CHOICES`; `chosen` names the layers to copy instead. Embeddings, pooler and what
    the layers share (relative position tables) are copied too, where their shapes agree.
    """
    family = family_of(source.model.config, source.name)
    if family.shared and getattr(source.model.config, "num_hidden_groups", 1) > 1:
        raise Fault(f"{source.name}: an ALBERT with several layer groups cannot be cut to fewer layers")
    model = _new(_student_config(source.model.config, wanted, teacher.model.config), seed)
    if init == "random":
        return Student(model=model, origin=("all weights new (random)",))
    layers = list(chosen) if chosen else choose_layers(init, wanted.layers, sizes(source.model.config).layers)
    with torch.no_grad():
        copied = _copy(model, _source_weights(source), layers, family)
    return Student(model=model, origin=tuple(_origin(source, family, copied, layers)))


def _origin(source: Loaded, family: Family, copied: set[str], layers: Sequence[int]) -> list[str]:
    lines = []
    pieces: list[str] = [piece for piece in ("embeddings", "pooler") if piece in copied]
    if any(group.startswith("layer ") for group in copied):
        if family.shared:
            pieces.insert(1, f"the one layer that all {len(layers)} applications share")
        else:
            pieces.insert(1, f"layers {', '.join(map(str, layers))} as 1..{len(layers)}")
    else:
        lines.append("layers are new (random): their shapes differ from the source's")
    if pieces:
        lines.insert(0, f"copied from {source.name}: {'; '.join(pieces)}")
    new: list[str] = [piece for piece in ("embeddings", "pooler") if piece not in copied] + ["classifier"]
    lines.append(f"new (random): {', '.join(new)}")
    if family.shared:
        lines.append("ALBERT's layers are one set of weights: fewer layers make it faster, not smaller")
    return lines


def build_from_checkpoint(*, teacher: Loaded, checkpoint: Loaded, layers: int | None, seed: int = 0) -> Student:
    """A student that is another checkpoint, of any family with the teacher's vocabulary, with a new classifier."""
    config = copy.deepcopy(checkpoint.model.config)
    has = sizes(config).layers
    if layers is not None and layers != has:
        raise Fault(
            f"--layers {layers}: {checkpoint.name} has {has}; leave --layers out, "
            f"or take some of its layers with --init even --init-from {checkpoint.name}"
        )
    check_same_tokenizer(teacher, checkpoint)
    _take_labels(config, teacher.model.config)
    family = family_of(config, checkpoint.name)
    model = _new(config, seed)
    with torch.no_grad():
        copied = _copy(model, _source_weights(checkpoint), range(1, has + 1), family)
    return Student(model=model, origin=tuple(_origin(checkpoint, family, copied, range(1, has + 1))))
