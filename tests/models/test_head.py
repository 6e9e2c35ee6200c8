"""The teacher's pooler and classifier inside the student."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from stillery.faults import Fault
from stillery.models.family import sizes
from stillery.models.head import check_reuse, reuse_head
from stillery.models.load import Loaded
from stillery.models.student import build
from stillery.models.trace import trace


def full_depth(teacher: Loaded, **other: int) -> Any:
    wanted = dataclasses.replace(sizes(teacher.model.config), **other)
    return build(teacher=teacher, source=teacher, wanted=wanted, init="even").model.eval()


@pytest.mark.parametrize("freeze", [False, True])
def test_a_full_copy_with_the_teachers_head_is_the_teacher(
    teacher: Loaded, batch: dict[str, Tensor], freeze: bool
) -> None:
    student = full_depth(teacher)
    with torch.no_grad():
        expected, before = trace(teacher.model, batch).logits, trace(student, batch).logits
        said = reuse_head(student, teacher, freeze=freeze)
        assert torch.equal(trace(student, batch).logits, expected)
    assert not torch.equal(before, expected)
    assert said == f"pooler and classifier replaced by the teacher's{', frozen' if freeze else ''}"


def test_a_frozen_head_lets_gradients_through_but_takes_none(
    teacher: Loaded, kind: Any, batch: dict[str, Tensor]
) -> None:
    student = full_depth(teacher, layers=2)
    reuse_head(student, teacher, freeze=True)
    trace(student, batch).logits.square().sum().backward()
    head = (kind.pooler, kind.classifier)
    frozen = {name for name, parameter in student.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name, _ in student.named_parameters() if name.startswith(head)}
    assert len(frozen) == 4
    for name, parameter in student.named_parameters():
        assert (parameter.grad is None) == (name in frozen), name
    assert student.get_input_embeddings().weight.grad.any()


def test_a_reused_head_is_a_copy(teacher: Loaded, kind: Any, batch: dict[str, Tensor]) -> None:
    student = full_depth(teacher)
    reuse_head(student, teacher, freeze=False)
    theirs = {name: value.clone() for name, value in teacher.model.state_dict().items()}
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.zero_()
    assert all(torch.equal(value, theirs[name]) for name, value in teacher.model.state_dict().items())
    assert all(parameter.requires_grad for parameter in teacher.model.parameters())


def test_another_width_is_refused(teacher: Loaded) -> None:
    student = full_depth(teacher, width=16)
    for refuse in (
        lambda: check_reuse(student.config.model_type, 16, teacher),
        lambda: reuse_head(student, teacher, freeze=False),
    ):
        with pytest.raises(Fault, match="width 16 is not the teacher's 32") as caught:
            refuse()
        assert len(caught.value.lines) == 1


def test_another_family_is_refused(teacher: Loaded, make: Any) -> None:
    other = "distilbert" if teacher.model.config.model_type == "bert" else "bert"
    with pytest.raises(Fault, match=f"the student is a {other}, the teacher a {teacher.model.config.model_type}"):
        check_reuse(other, 32, teacher)
    with pytest.raises(Fault, match="use --head fresh"):
        reuse_head(make(other), teacher, freeze=True)
