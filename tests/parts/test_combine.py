"""ALP-KD's attention over teacher layers: golden number 18."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stillery.parts.combine import attend
from stillery.parts.distance import mse

STUDENT = torch.tensor([[1.0, 0.0]])
TEACHERS = [torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])]
seeds = st.integers(0, 10_000)


def rows(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("scale", "weight", "error"), [(False, 0.73105858, 0.07232949), (True, 0.66976155, 0.10905743)]
)
def test_golden_18(scale: bool, weight: float, error: float) -> None:
    target = attend(STUDENT, TEACHERS, scale=scale)
    assert target[0].tolist() == pytest.approx([weight, 1 - weight], abs=1e-6)
    assert mse(STUDENT, target).item() == pytest.approx(error, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_one_layer_is_plain_squared_error(seed: int) -> None:
    student, teacher = rows(seed, 5, 6), rows(seed + 1, 5, 6)
    torch.testing.assert_close(mse(student, attend(student, [teacher])), mse(student, teacher))


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(1, 6), st.booleans())
def test_equal_layers_make_the_weights_immaterial(seed: int, count: int, scale: bool) -> None:
    student, teacher = rows(seed, 5, 6), rows(seed + 1, 5, 6)
    torch.testing.assert_close(attend(student, [teacher] * count, scale=scale), teacher)


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_a_large_student_attends_to_the_nearest_by_dot_product(seed: int) -> None:
    student, teachers = rows(seed, 5, 6), [rows(seed + i, 5, 6) for i in (1, 2, 3)]
    products = torch.stack([(student * teacher).sum(-1) for teacher in teachers])
    nearest = torch.stack(teachers)[products.argmax(0), torch.arange(5)]
    torch.testing.assert_close(attend(1e6 * student, teachers), nearest, atol=1e-6, rtol=1e-6)


def test_dot_products_beyond_what_an_exponential_holds() -> None:
    assert torch.isfinite(attend(1e3 * STUDENT, [1e3 * teacher for teacher in TEACHERS])).all()


@pytest.mark.parametrize("detach", [False, True])
def test_the_gradient_flows_through_the_weights_unless_detached(detach: bool) -> None:
    student = STUDENT.clone().requires_grad_()
    target = attend(student, TEACHERS, detach=detach)
    assert target.requires_grad != detach


def test_tokens_attend_on_their_own() -> None:
    student, teachers = rows(0, 2, 3, 4), [rows(i, 2, 3, 4) for i in (1, 2)]
    whole = attend(student, teachers)
    for token in range(3):
        alone = attend(student[:, token], [teacher[:, token] for teacher in teachers])
        torch.testing.assert_close(whole[:, token], alone)
