"""Reuse of the teacher's classification head in the student (ILD-RTC; SimKD).

At the same width the teacher's pooler and linear classifier replace the student's. At another width the student keeps
its own pooler, followed by a trainable projector and the teacher's linear classifier; on export these two are folded
into one linear layer.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from stillery.errors import ErrorList, UserError
from stillery.models.custom_head import HOW_TO_LOAD
from stillery.models.family import family_of, sizes
from stillery.models.load_model import Loaded, load_head
from stillery.models.projected_head import Head, final_linear, head_of, insert, pooler_path

__all__ = ["choose_head", "load_student", "reuse_head"]

_CUSTOM = "or --allow-custom-head for an export that only stillery loads"


def choose_head(
    student: PreTrainedConfig,
    student_width: int,
    teacher: Loaded,
    *,
    reuse: str | None = None,
    projector: str | None = None,
    allow_custom: bool = False,
) -> Head:
    """Choose the head of a student that reuses the teacher's; `reuse` and `projector` default by the widths.

    `student` is the configuration that the student is derived from, at any width. All errors are reported together.
    """
    errors, width = ErrorList(), final_linear(teacher.model).in_features
    no_pooler = _no_pooler(student, teacher)
    if reuse is None:
        reuse = "linear" if no_pooler or student_width != width else "pooler+linear"
    elif reuse == "pooler+linear" and no_pooler:
        errors.add(f"--reuse pooler+linear: {no_pooler}; use --reuse linear, or --head fresh")
    elif reuse == "pooler+linear" and student_width != width and not allow_custom:
        errors.add(
            f"--reuse pooler+linear: the student's width {student_width} is not the teacher's {width}, and a projector "
            f"before the teacher's pooler does not fold into a plain model; use --reuse linear, {_CUSTOM}"
        )
    if projector is None and student_width != width:
        projector = "linear"
    if projector == "mlp" and not allow_custom:
        errors.add(f"--projector mlp: it does not fold into a plain model; use --projector linear, {_CUSTOM}")
    before_pooler = projector is not None and reuse == "pooler+linear"
    if before_pooler and not errors.lines and not _has_bias(teacher):
        errors.add(
            f"--reuse pooler+linear: the pooler of {teacher.name} has no bias, so no projector goes before it; use "
            "--reuse linear"
        )
    errors.raise_any()
    return Head(reuse=reuse, projector=projector, width=width)


def _no_pooler(student: PreTrainedConfig, teacher: Loaded) -> str | None:
    """Return the reason why the student cannot reuse the teacher's pooler, or None."""
    config = teacher.model.config
    if pooler_path(teacher.model) is None:
        return "a model that classifies tokens has no pooler"
    if student.model_type != config.model_type:
        return f"the student is a {student.model_type}, the teacher a {config.model_type}; their poolers differ"
    ours, theirs = (getattr(each, "pooler_hidden_act", None) for each in (student, config))
    if ours != theirs:
        return f"the student's pooler ends in {ours}, the teacher's in {theirs}"
    if head_of(teacher.model) is not None:
        return f"the head of {teacher.name} is a custom one, its pooler does not stand alone"
    return None


def _has_bias(model: Loaded) -> bool:
    path = pooler_path(model.model)
    return path is None or getattr(model.model.get_submodule(path), "bias", None) is not None


@torch.no_grad()
def reuse_head(
    student: PreTrainedModel, teacher: Loaded, head: Head | None = None, *, freeze: bool, seed: int = 0
) -> str:
    """Copy the layers of the teacher's head named by `head` into the student; return a description.

    With `freeze` these are not trained; a projector, initialised from the seed, always is.
    """
    theirs = teacher.model
    head = head or choose_head(student.config, sizes(student.config).width, teacher)
    if student.config.num_labels != final_linear(theirs).out_features:
        raise UserError(
            f"--head reuse: the student has {student.config.num_labels} labels, the teacher's classifier "
            f"{final_linear(theirs).out_features}; use --head fresh"
        )
    insert(student, head, seed)
    reused: list[tuple[nn.Module, nn.Module]] = [(final_linear(student), final_linear(theirs))]
    if head.reuse == "pooler+linear":
        path = pooler_path(student)
        assert path is not None
        pooler = student.get_submodule(path)
        reused.append((getattr(pooler, "linear", pooler), theirs.get_submodule(path)))
        norm = family_of(student.config, "student").pooler_norm
        if norm is not None:
            reused.append((student.get_submodule(norm), theirs.get_submodule(norm)))
    for ours, source in reused:
        ours.load_state_dict(source.state_dict())
        ours.requires_grad_(not freeze)
    return _in_words(head, student, theirs, freeze)


def _in_words(head: Head, student: PreTrainedModel, teacher: PreTrainedModel, freeze: bool) -> str:
    own, theirs, width = student.config.model_type, teacher.config.model_type, sizes(student.config).width
    whose = "the teacher's" + (f" (of a {theirs}; the student is a {own})" if own != theirs else "")
    frozen = ", frozen" if freeze else ""
    new = f"behind a new {head.projector} projector {width} -> {head.width}"
    if head.reuse == "pooler+linear":
        words = f"pooler and classifier replaced by {whose}{frozen}"
        words += f", {new}" if head.projector else ""
    else:
        words, pooled = f"classifier replaced by {whose}{frozen}", pooler_path(student) is not None
        if head.projector:
            words += f", {new} that follows the student's own {'pooler' if pooled else 'last layer'}"
        elif pooled:
            words += "; the pooler is the student's"
    if head.projector and head.folds(width):
        return f"{words}; the projector is folded into the head on export"
    return f"{words}; this head is custom, the export loads with `{HOW_TO_LOAD}` only" if head.projector else words


def load_student(folder: str | Path) -> PreTrainedModel:
    """Load a student with a plain or a custom head, in eval mode, from its folder or run folder."""
    return load_head(str(folder)).model
