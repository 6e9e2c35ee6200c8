"""A student holds exactly what its origin says it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from stillery.errors import UserError
from stillery.models.family import Sizes, sizes
from stillery.models.load_model import Loaded
from stillery.models.student import Student, StudentShape, build, choose_layers, student_sizes
from stillery.models.trace import trace


def student_of(
    teacher: Loaded, init: str = "even", chosen: Sequence[int] | None = None, seed: int = 0, **shape: Any
) -> Student:
    wanted = student_sizes(StudentShape(**{"layers": 2} | shape), teacher.model.config, teacher.name)
    return build(teacher=teacher, source=teacher, wanted=wanted, init=init, chosen=chosen, seed=seed)


def weights(student: Student) -> dict[str, Tensor]:
    return dict(student.model.state_dict())


def logits(student: Student, batch: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        return trace(student.model.eval(), batch).logits


@pytest.mark.parametrize(
    ("init", "chosen", "layers"),
    [("even", None, [2, 4]), ("first", None, [1, 2]), ("last", None, [3, 4]), ("even", [4, 1], [4, 1])],
)
def test_layers_are_copied_tensor_by_tensor(
    teacher: Loaded, kind: Any, batch: dict[str, Tensor], init: str, chosen: list[int] | None, layers: list[int]
) -> None:
    student, theirs = student_of(teacher, init, chosen), teacher.model.state_dict()
    shared = teacher.model.config.model_type == "albert"
    assert sizes(student.model.config).layers == 2
    for name, tensor in weights(student).items():
        source = name
        if name.startswith(kind.layers) and not shared:
            index, rest = name.removeprefix(kind.layers).split(".", 1)
            source = f"{kind.layers}{layers[int(index)] - 1}.{rest}"
            if rest == "attn_norm.weight" and source not in theirs:
                # ModernBERT's first layer has no such norm; elsewhere it starts as a norm does.
                assert torch.equal(tensor, torch.ones(32))
                continue
        own_classifier = name.startswith(kind.classifier)
        assert torch.equal(tensor, theirs[source]) != own_classifier, name
    which = "the one layer that all 2 applications share" if shared else f"layers {layers[0]}, {layers[1]} as 1..2"
    assert student.origin[0].startswith(f"copied from {teacher.name}: embeddings; ")
    assert f"; {which}; " in student.origin[0]
    assert student.origin[0].endswith("; pooler")
    assert ("relative positions" in student.origin[0]) == (teacher.model.config.model_type in ("mpnet", "deberta-v2"))
    assert ("convolution" in student.origin[0]) == ("conv" in teacher.name)
    assert student.origin[1] == "new (random): classifier"
    assert ("ALBERT" in student.origin[-1]) == shared
    assert logits(student, batch).shape == (3, 3)


def test_random_copies_nothing(teacher: Loaded, batch: dict[str, Tensor]) -> None:
    student, theirs = student_of(teacher, "random"), teacher.model.state_dict()
    assert not any(torch.equal(tensor, theirs[name]) for name, tensor in weights(student).items())
    assert student.origin == ("all weights new (random)",)
    assert logits(student, batch).isfinite().all()


@pytest.mark.parametrize("init", ["random", "even"])
def test_new_weights_follow_the_seed_alone(teacher: Loaded, kind: Any, init: str) -> None:
    state = torch.get_rng_state()
    one = weights(student_of(teacher, init, seed=7))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(123)
    same, other = weights(student_of(teacher, init, seed=7)), weights(student_of(teacher, init, seed=8))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one[f"{kind.classifier}weight"], other[f"{kind.classifier}weight"])


@pytest.mark.parametrize(("width", "heads"), [(48, 6), (16, 2), (40, 5)])
def test_other_widths(teacher: Loaded, kind: Any, batch: dict[str, Tensor], width: int, heads: int) -> None:
    student = student_of(teacher, width=width, heads=heads)
    config, theirs = student.model.config, teacher.model.state_dict()
    assert sizes(config) == dataclasses.replace(sizes(config), layers=2, width=width, heads=heads)
    assert getattr(config, "pooler_hidden_size", width) == width
    traced = trace(student.model.eval(), batch, [0, 1, 2])
    assert traced.logits.shape == (3, 3)
    assert all(state.shape == (3, 9, width) for state in traced.encoder.hidden.values())
    own_embeddings = config.model_type in ("albert", "electra")
    for name, tensor in weights(student).items():
        copied = name in theirs and tensor.shape == theirs[name].shape and torch.equal(tensor, theirs[name])
        assert copied == (own_embeddings and ".embeddings." in name), name
    new = student.origin[-2 if config.model_type == "albert" else -1]
    assert new.startswith("new (random): ") and new.endswith("pooler (of another shape), classifier")
    assert "layers (of another shape)" in new
    assert ("embeddings (of another shape)" in new) != own_embeddings
    assert (student.origin[0] == f"copied from {teacher.name}: embeddings") == own_embeddings


def test_an_electra_as_narrow_as_its_embeddings_needs_no_projection(make: Any, tokenizer: Any) -> None:
    teacher = Loaded(model=make("electra"), tokenizer=tokenizer, name="electra", missing=frozenset())
    narrow, wide = student_of(teacher, width=16), student_of(teacher, width=48)
    assert not any("embeddings_project" in name for name in weights(narrow))
    assert "projection" not in " ".join(narrow.origin)
    assert "embedding projection (of another shape)" in wide.origin[1]


def test_other_heads_at_the_same_width(teacher: Loaded, batch: dict[str, Tensor]) -> None:
    student = student_of(teacher, heads=8)
    assert "layers" in student.origin[0] or "the one layer" in student.origin[0]
    said = [line for line in student.origin if line.startswith("8 heads instead of 4")]
    assert len(said) == 1
    # MPNet's table of relative positions has one column per head.
    own = teacher.model.config.model_type == "mpnet"
    assert ("relative positions (of another shape)" in student.origin[1]) == own
    assert logits(student, batch).isfinite().all()


def test_what_the_source_does_not_hold_is_new(teacher: Loaded, kind: Any) -> None:
    absent = frozenset(name for name in teacher.model.state_dict() if name.startswith(kind.pooler))
    assert absent
    student = student_of(dataclasses.replace(teacher, missing=absent))
    assert not any(torch.equal(weights(student)[name], teacher.model.state_dict()[name]) for name in absent)
    assert "pooler" not in student.origin[0]
    assert student.origin[1] == f"new (random): pooler (not in {teacher.name}), classifier"


def test_the_teachers_labels_are_kept(teacher: Loaded) -> None:
    config = student_of(teacher).model.config
    assert config.id2label == {0: "bad", 1: "fair", 2: "good"}
    assert config.label2id == {"bad": 0, "fair": 1, "good": 2}
    assert config.num_labels == 3
    assert config.problem_type is None
    assert config.id2label is not teacher.model.config.id2label


def test_a_regression_teacher_makes_a_regression_student(make: Any, teacher: Loaded, batch: dict[str, Tensor]) -> None:
    name = teacher.name.removeprefix("teacher-")
    model = make(name, num_labels=1, problem_type="regression")
    student = student_of(dataclasses.replace(teacher, model=model))
    assert student.model.config.problem_type == "regression"
    assert student.model.config.num_labels == 1
    assert logits(student, batch).shape == (3, 1)


def test_labels_are_the_teachers_where_the_layers_are_another_models(make: Any, teacher: Loaded) -> None:
    name = teacher.name.removeprefix("teacher-")
    other = dataclasses.replace(teacher, model=make(name, seed=9, num_labels=5), name="other")
    scorer = dataclasses.replace(teacher, model=make(name, num_labels=1, problem_type="regression"))
    wanted = student_sizes(StudentShape(layers=2), other.model.config, other.name)
    student = build(teacher=scorer, source=other, wanted=wanted, init="last")
    config = student.model.config
    assert torch.equal(student.model.get_input_embeddings().weight, other.model.get_input_embeddings().weight)
    assert (config.id2label, config.label2id, config.problem_type) == ({0: "LABEL_0"}, {"LABEL_0": 0}, "regression")
    assert student.origin[0].startswith("copied from other: ")


def test_grouped_albert_is_not_cut(make: Any, tokenizer: Any) -> None:
    model = make("albert", num_hidden_groups=2)
    teacher = Loaded(model=model, tokenizer=tokenizer, name="grouped", missing=frozenset())
    with pytest.raises(UserError, match=r"grouped: .*several layer groups"):
        student_of(teacher)
    whole = student_of(teacher, layers=4)
    assert "copied from grouped" in whole.origin[0]


@pytest.mark.parametrize("layers", range(1, 25))
def test_chosen_layers_ascend_and_end_where_they_should(layers: int) -> None:
    for count in range(1, layers + 1):
        even, first, last = (choose_layers(choice, count, layers) for choice in ("even", "first", "last"))
        assert even == sorted(set(even)) and len(even) == count and even[0] >= 1 and even[-1] == layers
        assert first == list(range(1, count + 1))
        assert last == list(range(layers - count + 1, layers + 1))


def test_even_layers_of_the_papers() -> None:
    assert choose_layers("even", 3, 12) == [4, 8, 12]
    assert choose_layers("even", 6, 12) == [2, 4, 6, 8, 10, 12]
    assert choose_layers("even", 4, 6) == [2, 3, 5, 6]


def test_sizes_follow_the_width(teacher: Loaded) -> None:
    config = teacher.model.config
    asked = student_sizes(StudentShape(layers=2, width=16), config, "t")
    assert asked == Sizes(layers=2, width=16, heads=2, inner=24)
    assert student_sizes(StudentShape(layers=4), config, "t") == Sizes(layers=4, width=32, heads=4, inner=48)


def test_faults_of_a_shape_are_reported_together(teacher: Loaded) -> None:
    with pytest.raises(UserError) as caught:
        student_sizes(StudentShape(layers=5, width=30, heads=4), teacher.model.config, "t")
    assert [line.split(":")[0] for line in caught.value.lines] == ["--layers 5", "width 30 is not divisible by 4 heads"]
    with pytest.raises(UserError, match="at least one layer"):
        student_sizes(StudentShape(layers=0), teacher.model.config, "t")
