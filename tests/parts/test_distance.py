"""Distances against the golden numbers, and masks against padding."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stillery.parts.distance import REDUCTIONS, contrastive, mse, normalised_mse

TEACHER = torch.arange(18, dtype=torch.float32).reshape(2, 3, 3) / 10
STUDENT = torch.zeros(2, 3, 3)
MASK = torch.tensor([[1, 1, 0], [1, 0, 0]])
DISTANCES = (mse, normalised_mse)


def test_golden_1_normalised_pair() -> None:
    student, teacher = torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 3.0]])
    assert normalised_mse(student, teacher, reduction="sum").item() == pytest.approx(0.08, abs=1e-6)
    assert normalised_mse(student, teacher).item() == pytest.approx(0.04, abs=1e-6)
    cosine = torch.nn.functional.cosine_similarity(student, teacher).item()
    assert normalised_mse(student, teacher, reduction="sum").item() == pytest.approx(2 - 2 * cosine, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), left=st.floats(0.01, 100), right=st.floats(0.01, 100))
def test_golden_1_is_scale_free_and_bounded(seed: int, left: float, right: float) -> None:
    made = torch.Generator().manual_seed(seed)
    student, teacher = torch.randn(4, 6, generator=made), torch.randn(4, 6, generator=made)
    plain = normalised_mse(student, teacher, reduction="batchmean")
    torch.testing.assert_close(normalised_mse(student * left, teacher * right, reduction="batchmean"), plain)
    assert 0 <= plain.item() <= 4


@pytest.mark.parametrize(
    ("reduction", "mask", "value"),
    [
        ("batchmean_twice", MASK, 0.595),
        ("mean", MASK, 0.39666667),
        ("batchmean", MASK, 1.19),
        ("mean", None, 0.99166667),
    ],
    ids=["BERT form", "BART form", "masked mean squared L2", "plain MSE"],
)
def test_golden_12_reductions(reduction: str, mask: torch.Tensor | None, value: float) -> None:
    assert mse(STUDENT, TEACHER, mask, reduction).item() == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_what_stands_in_padding_never_counts(distance, reduction: str) -> None:
    made = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 3, 5, generator=made), torch.randn(2, 3, 5, generator=made)
    before = distance(student, teacher, MASK, reduction)
    padding = MASK == 0
    for filler in (1e6, float("inf"), float("nan")):
        student[padding], teacher[padding] = filler, -filler
        torch.testing.assert_close(distance(student, teacher, MASK, reduction), before)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_more_padding_changes_nothing(distance, reduction: str) -> None:
    made = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 3, 5, generator=made), torch.randn(2, 3, 5, generator=made)
    wider = torch.nn.functional.pad
    torch.testing.assert_close(
        distance(wider(student, (0, 0, 0, 4)), wider(teacher, (0, 0, 0, 4)), wider(MASK, (0, 4)), reduction),
        distance(student, teacher, MASK, reduction),
    )


@pytest.mark.parametrize("distance", DISTANCES)
def test_gradient_of_padding_is_zero(distance) -> None:
    student = torch.randn(2, 3, 5, requires_grad=True)
    distance(student, torch.randn(2, 3, 5), MASK).backward()
    assert student.grad is not None
    assert student.grad[MASK == 0].abs().max() == 0
    assert student.grad[MASK == 1].abs().min() > 0


@pytest.mark.parametrize("distance", DISTANCES)
def test_reductions_relate(distance) -> None:
    student, teacher = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    total = distance(student, teacher, MASK, "sum")
    torch.testing.assert_close(distance(student, teacher, MASK, "batchmean"), total / 3)
    torch.testing.assert_close(distance(student, teacher, MASK, "mean"), total / 15)


@pytest.mark.parametrize("mask", [None, MASK])
def test_unknown_reduction_is_named(mask: torch.Tensor | None) -> None:
    with pytest.raises(ValueError, match="avg"):
        mse(STUDENT, TEACHER, mask, reduction="avg")


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_no_mask_is_a_mask_of_real_tokens(distance, reduction: str) -> None:
    student = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    values = [distance(student, teacher, mask, reduction) for mask in (None, torch.ones(2, 3))]
    torch.testing.assert_close(*values)
    gradients = [torch.autograd.grad(value, (student, teacher)) for value in values]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("mask", [None, torch.ones(4, 3)])
def test_normalised_rows_and_their_gradient_are_those_of_unit_length(mask: torch.Tensor | None) -> None:
    rows, others = torch.randn(2, 4, 3, 6, dtype=torch.float64)
    rows[0, 0], others[0, 1] = 0.0, 0.0
    unit = partial(torch.nn.functional.normalize, dim=-1)
    found = []
    for distance in (normalised_mse, lambda one, other, *rest: mse(unit(one), unit(other), *rest)):
        given = rows.clone().requires_grad_(), others.clone().requires_grad_()
        value = distance(*given, mask, "mean")
        found.append((value.detach(), *torch.autograd.grad(value, given)))
    torch.testing.assert_close(*found)
    # What is already as good as zero is not blown up.
    tiny = normalised_mse(torch.full((1, 6), 1e-14), torch.zeros(1, 6))
    torch.testing.assert_close(tiny, mse(unit(torch.full((1, 6), 1e-14)), torch.zeros(1, 6)), rtol=1e-3, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened_before_scores_are_made(dtype: torch.dtype) -> None:
    """Scores of unit rows by a temperature of 0.07 reach 14: rounded to half precision they would move the loss."""
    torch.manual_seed(0)
    student, teacher = torch.randn(16, 8).to(dtype), torch.randn(16, 8).to(dtype)
    found = contrastive(student, teacher)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, contrastive(student.float(), teacher.float()), rtol=1e-6, atol=0)
