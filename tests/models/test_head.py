"""The teacher's head inside a student of the teacher's width, and who may not have which part of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DebertaV2Config

from stillery.errors import UserError
from stillery.models.family import family_of, sizes
from stillery.models.head import choose_head, reuse_head
from stillery.models.load_model import Loaded
from stillery.models.projected_head import Head, folded, head_of
from stillery.models.student import build
from stillery.models.trace import trace
from stillery.parts.divergence import kl


def full_depth(teacher: Loaded, **other: int) -> Any:
    wanted = dataclasses.replace(sizes(teacher.model.config), **other)
    return build(teacher=teacher, source=teacher, wanted=wanted, init="even").model.eval()


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("reuse", ["pooler+linear", "linear"])
def test_a_full_copy_with_the_teachers_head_is_the_teacher(
    teacher: Loaded, batch: dict[str, Tensor], freeze: bool, reuse: str
) -> None:
    """Golden test 19: the same logits to the bit, and a divergence of 0."""
    student = full_depth(teacher)
    head = choose_head(student.config, 32, teacher, reuse=reuse)
    assert head == Head(reuse=reuse, projector=None, width=32)
    with torch.no_grad():
        expected, before = trace(teacher.model, batch).logits, trace(student, batch).logits
        said = reuse_head(student, teacher, head, freeze=freeze)
        logits = trace(student, batch).logits
        assert torch.equal(logits, expected)
        assert kl(logits, expected, temperature=10.0) == 0
    assert not torch.equal(before, expected)
    frozen = ", frozen" if freeze else ""
    assert (
        said
        == {
            "pooler+linear": f"pooler and classifier replaced by the teacher's{frozen}",
            "linear": f"classifier replaced by the teacher's{frozen}; the pooler is the student's",
        }[reuse]
    )
    assert head_of(student) is None and folded(student) is student


def test_both_are_reused_by_default(teacher: Loaded) -> None:
    assert choose_head(teacher.model.config, 32, teacher) == Head(reuse="pooler+linear", projector=None, width=32)
    assert choose_head(teacher.model.config, 16, teacher) == Head(reuse="linear", projector="linear", width=32)


@pytest.mark.parametrize("reuse", ["pooler+linear", "linear"])
def test_a_frozen_head_lets_gradients_through_but_takes_none(
    teacher: Loaded, kind: Any, batch: dict[str, Tensor], reuse: str
) -> None:
    student = full_depth(teacher, layers=2)
    reuse_head(student, teacher, choose_head(student.config, 32, teacher, reuse=reuse), freeze=True)
    trace(student, batch).logits.square().sum().backward()
    head = (kind.pooler, kind.classifier) if reuse == "pooler+linear" else (kind.classifier,)
    frozen = {name for name, parameter in student.named_parameters() if not parameter.requires_grad}
    # RoBERTa calls its whole head `classifier.`, so names are compared in full.
    # ModernBERT has a norm between pooler and classifier.
    norms = {name for name, _ in student.named_parameters() if name.startswith("head.norm.") and len(head) == 2}
    assert frozen == {name for name, _ in student.named_parameters() if name.startswith(head)} | norms
    assert len(frozen) == 2 * len(head) + len(norms)
    for name, parameter in student.named_parameters():
        assert (parameter.grad is None) == (name in frozen), name
    assert student.get_input_embeddings().weight.grad.any()


def test_a_reused_head_is_a_copy(teacher: Loaded) -> None:
    student = full_depth(teacher)
    reuse_head(student, teacher, freeze=False)
    theirs = {name: value.clone() for name, value in teacher.model.state_dict().items()}
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.zero_()
    assert all(torch.equal(value, theirs[name]) for name, value in teacher.model.state_dict().items())
    assert all(parameter.requires_grad for parameter in teacher.model.parameters())


def test_a_pooler_of_another_family_is_refused(teacher: Loaded, make: Any) -> None:
    own = teacher.model.config.model_type
    other = "distilbert" if own == "bert" else "bert"
    with pytest.raises(UserError) as caught:
        choose_head(make(other).config, 32, teacher, reuse="pooler+linear", projector="mlp")
    pooler, projector = caught.value.lines
    assert pooler == (
        f"--reuse pooler+linear: the student is a {other}, the teacher a {own}; their poolers differ; "
        "use --reuse linear, or --head fresh"
    )
    assert projector.startswith("--projector mlp: it does not fold into a plain model; use --projector linear")


@pytest.mark.parametrize("width", [32, 16])
def test_the_classifier_of_another_family_is_reused(
    teacher: Loaded, make: Any, batch: dict[str, Tensor], width: int
) -> None:
    own = teacher.model.config.model_type
    other = "distilbert" if own == "bert" else "bert"
    student = make(other, **({"dim": width} if other == "distilbert" else {"hidden_size": width}))
    said = reuse_head(student, teacher, freeze=True)
    assert said.startswith(f"classifier replaced by the teacher's (of a {own}; the student is a {other}), frozen")
    assert ("linear projector 16 -> 32 that follows the student's own pooler" in said) == (width == 16)
    theirs = teacher.model.get_submodule(family_of(teacher.model.config, own).classifier).weight
    ours = student.classifier.weight if width == 32 else student.classifier.linear.weight
    assert torch.equal(ours, theirs) and not ours.requires_grad
    with torch.no_grad():
        logits = trace(student, batch).logits
        torch.testing.assert_close(trace(folded(student), batch).logits, logits, rtol=0, atol=1e-6)


def test_another_number_of_labels_is_refused(teacher: Loaded, make: Any) -> None:
    name = teacher.name.removeprefix("teacher-")
    with pytest.raises(UserError, match="the student has 2 labels, the teacher's classifier 3; use --head fresh"):
        reuse_head(make(name, num_labels=2), teacher, freeze=False)


def test_a_pooler_that_ends_otherwise_is_refused(make: Any, tokenizer: Any) -> None:
    teacher = Loaded(model=make("deberta-v2"), tokenizer=tokenizer, name="t", missing=frozenset())
    other = DebertaV2Config(**(teacher.model.config.to_dict() | {"pooler_hidden_act": "tanh"}))
    assert choose_head(other, 32, teacher).reuse == "linear"
    with pytest.raises(UserError, match="the student's pooler ends in tanh, the teacher's in gelu"):
        choose_head(other, 32, teacher, reuse="pooler+linear")
