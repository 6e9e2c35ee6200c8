"""The teacher's head behind a projector: what is trained, and that it folds exactly into a plain model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerBase

from stillery.errors import UserError
from stillery.models.export import export
from stillery.models.family import sizes
from stillery.models.head import choose_head, reuse_head
from stillery.models.load_model import Loaded, load_classifier
from stillery.models.projected_head import Head, exported_parameters, folded, head_of, is_custom
from stillery.models.student import build
from stillery.models.trace import trace
from stillery.train.optimiser import adamw

# Width of the student, what is reused, and the projector asked for; the teacher's width is 32.
FOLDING = [(16, None, None), (48, None, None), (16, "linear", "linear"), (32, "linear", "linear"),
           (32, "pooler+linear", "linear")]  # fmt: skip


def projected(
    teacher: Loaded, width: int, reuse: str | None = None, projector: str | None = None, *, freeze: bool = True,
    seed: int = 0,
) -> Any:  # fmt: skip
    wanted = dataclasses.replace(sizes(teacher.model.config), layers=2, width=width)
    model = build(teacher=teacher, source=teacher, wanted=wanted, init="first").model.eval()
    head = choose_head(teacher.model.config, width, teacher, reuse=reuse, projector=projector)
    said = reuse_head(model, teacher, head, freeze=freeze, seed=seed)
    assert f"linear projector {width} -> 32" in said and "folded into the head on export" in said
    return model


def state(model: Any) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_every_case_reloads_as_a_plain_model(
    teacher: Loaded, batch: dict[str, Tensor], tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    random = torch.Generator().manual_seed(5)
    for number, (width, reuse, projector) in enumerate(FOLDING):
        student = projected(teacher, width, reuse, projector)
        with torch.no_grad():
            for parameter in student.parameters():
                # As after some training: the logits are not next to nothing.
                parameter.add_(torch.randn(parameter.shape, generator=random), alpha=0.2)
        before = state(student)
        with torch.no_grad():
            expected = trace(student, batch).logits
        export(student, tokenizer, tmp_path / str(number), "card")
        assert all(torch.equal(tensor, before[name]) for name, tensor in student.state_dict().items())
        plain, info = AutoModelForSequenceClassification.from_pretrained(
            tmp_path / str(number), output_loading_info=True
        )
        assert not any(info.values()), info
        assert sum(tensor.numel() for tensor in plain.parameters()) == exported_parameters(student)
        with torch.no_grad():
            logits = trace(plain, batch).logits
        assert (logits - expected).abs().max() <= 1e-6
        assert expected.std() > 0.1


def test_the_fold_is_the_product_of_the_maps(teacher: Loaded, kind: Any) -> None:
    student = projected(teacher, 16)
    theirs, ours = state(teacher.model), state(student)
    plain = folded(student).state_dict()
    weight, bias = theirs[f"{kind.classifier}weight"], theirs[f"{kind.classifier}bias"]
    projector = [ours[f"{kind.classifier}projector.{name}"] for name in ("weight", "bias")]
    torch.testing.assert_close(plain[f"{kind.classifier}weight"], weight @ projector[0])
    torch.testing.assert_close(plain[f"{kind.classifier}bias"], weight @ projector[1] + bias)
    assert not is_custom(student) and head_of(student) is not None and head_of(folded(student)) is None


@pytest.mark.parametrize(("width", "reuse"), [(16, "linear"), (32, "pooler+linear")])
def test_a_frozen_head_never_moves_and_all_else_does(
    teacher: Loaded, kind: Any, batch: dict[str, Tensor], width: int, reuse: str
) -> None:
    student = projected(teacher, width, reuse, "linear")
    before = state(student)
    optimiser = adamw(student, lr=0.1, weight_decay=0.5)
    trace(student, batch).logits.square().sum().backward()
    optimiser.step()
    moved = {name for name, tensor in student.state_dict().items() if not torch.equal(tensor, before[name])}
    if reuse == "linear":
        frozen = {f"{kind.classifier}linear.{name}" for name in ("weight", "bias")}
        projector = {f"{kind.classifier}projector.{name}" for name in ("weight", "bias")}
        assert {f"{kind.pooler}weight", f"{kind.pooler}bias"} <= moved, "the student's own pooler is trained"
    else:
        frozen = {f"{path}{name}" for path in (f"{kind.pooler}linear.", kind.classifier) for name in ("weight", "bias")}
        frozen |= {name for name in before if name.startswith("head.norm.")}
        projector = {f"{kind.pooler}projector.{name}" for name in ("weight", "bias")}
    assert projector <= moved and not frozen & moved
    assert {name for name, parameter in student.named_parameters() if not parameter.requires_grad} == frozen
    assert all(parameter.grad is None for name, parameter in student.named_parameters() if name in frozen)
    layers = {name for name, _ in student.named_parameters() if name.startswith(kind.layers)}
    assert any(name in moved for name in layers) and student.get_input_embeddings().weight.grad.any()


def test_a_head_that_is_not_frozen_moves(teacher: Loaded, kind: Any, batch: dict[str, Tensor]) -> None:
    student = projected(teacher, 16, freeze=False)
    trace(student, batch).logits.square().sum().backward()
    assert all(parameter.requires_grad for parameter in student.parameters())
    assert student.get_parameter(f"{kind.classifier}linear.weight").grad.any()


def test_the_projector_is_a_function_of_the_seed(teacher: Loaded, kind: Any) -> None:
    name = f"{kind.classifier}projector.weight"
    torch.manual_seed(11)
    following = torch.rand(1)
    torch.manual_seed(11)
    one, same, other = (projected(teacher, 16, seed=seed).state_dict()[name] for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert torch.equal(torch.rand(1), following), "the state of the random numbers is left alone"


@pytest.mark.parametrize(
    ("width", "reuse", "projector", "words"),
    [
        (16, "pooler+linear", None, ["--reuse pooler+linear: the student's width 16 is not the teacher's 32"]),
        (32, None, "mlp", ["--projector mlp: it does not fold"]),
        (16, "linear", "mlp", ["--projector mlp: it does not fold"]),
        (16, "pooler+linear", "mlp", ["--reuse pooler+linear: the student's width", "--projector mlp: it does not"]),
    ],
)
def test_what_cannot_fold_is_refused(
    teacher: Loaded, width: int, reuse: str | None, projector: str | None, words: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        choose_head(teacher.model.config, width, teacher, reuse=reuse, projector=projector)
    assert len(caught.value.lines) == len(words)
    for line, start in zip(caught.value.lines, words, strict=True):
        assert line.startswith(start) and "--allow-custom-head" in line


def test_a_folded_student_is_a_teacher_again(make: Any, tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    first = Loaded(model=make("bert", vocab_size=30522), tokenizer=tokenizer, name="t", missing=frozenset())
    export(projected(first, 16), tokenizer, tmp_path / "student", "card")
    second = load_classifier(str(tmp_path / "student"))
    assert not second.missing and choose_head(second.model.config, 16, second).reuse == "pooler+linear"


def test_no_projector_goes_before_a_pooler_without_a_bias(make: Any, tokenizer: Any) -> None:
    """ModernBERT's usual head: the fold would need one."""
    bare = Loaded(model=make("modernbert", classifier_bias=False), tokenizer=tokenizer, name="t", missing=frozenset())
    with pytest.raises(UserError, match="the pooler of t has no bias, so no projector goes before it"):
        choose_head(bare.model.config, 16, bare, reuse="pooler+linear", allow_custom=True)
    student = projected(bare, 16)
    assert head_of(student) == Head(reuse="linear", projector="linear", width=32)
