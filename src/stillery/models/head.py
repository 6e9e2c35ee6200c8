"""Reuse of the teacher's classifier in the student (ILD-RTC; SimKD)."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from stillery.faults import Fault
from stillery.models.family import family_of
from stillery.models.load import Loaded

__all__ = ["check_reuse", "reuse_head"]


def check_reuse(student_type: str, student_width: int, teacher: Loaded) -> None:
    """Refuse a reuse that would not give the teacher's head: another family, or another width."""
    config = teacher.model.config
    if student_type != config.model_type:
        raise Fault(
            f"--head reuse: the student is a {student_type}, the teacher a {config.model_type}; their heads differ, "
            "use --head fresh"
        )
    if student_width != config.hidden_size:
        raise Fault(
            f"--head reuse: the student's width {student_width} is not the teacher's {config.hidden_size}; "
            "use --head fresh"
        )


@torch.no_grad()
def reuse_head(student: PreTrainedModel, teacher: Loaded, *, freeze: bool) -> str:
    """Copy the teacher's pooler and classifier into the student; frozen ones let gradients through but never move."""
    check_reuse(student.config.model_type, student.config.hidden_size, teacher)
    family = family_of(student.config, "student")
    for path in (family.pooler, family.classifier):
        module = student.get_submodule(path)
        module.load_state_dict(teacher.model.get_submodule(path).state_dict())
        if freeze:
            module.requires_grad_(False)
    return f"pooler and classifier replaced by the teacher's{', frozen' if freeze else ''}"
