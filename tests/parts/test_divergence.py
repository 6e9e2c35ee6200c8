"""Prediction matching against golden numbers 2 and 3."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stillery.parts.divergence import kl, logit_mse, soft_ce

STUDENT = torch.tensor([[1.0, 2, 3], [0, 0, 1]])
TEACHER = torch.tensor([[3.0, 2, 1], [1, 0, 0]])


def test_golden_2() -> None:
    rows = [kl(STUDENT[i : i + 1], TEACHER[i : i + 1], 2.0, square=False).item() for i in range(2)]
    assert rows == pytest.approx([0.32015667, 0.08889707], abs=1e-6)
    crosses = [soft_ce(STUDENT[i : i + 1], TEACHER[i : i + 1], 2.0, square=False).item() for i in range(2)]
    assert crosses == pytest.approx([1.340348, 1.15734246], abs=1e-6)
    assert kl(STUDENT, TEACHER, 2.0).item() == pytest.approx(0.81810748, abs=1e-6)
    assert soft_ce(STUDENT, TEACHER, 2.0).item() == pytest.approx(4.99538093, abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), temperature=st.floats(0.5, 20))
def test_golden_3_cross_entropy_and_kl_differ_by_the_teachers_entropy(seed: int, temperature: float) -> None:
    made = torch.Generator().manual_seed(seed)
    teacher = torch.randn(5, 4, generator=made)
    left = torch.randn(5, 4, generator=made).requires_grad_()
    right = left.detach().clone().requires_grad_()
    cross, divergence = soft_ce(left, teacher, temperature), kl(right, teacher, temperature)
    cross.backward()
    divergence.backward()
    torch.testing.assert_close(left.grad, right.grad, atol=1e-6, rtol=1e-4)
    entropy = torch.distributions.Categorical(logits=teacher / temperature).entropy().mean() * temperature**2
    torch.testing.assert_close(cross - divergence, entropy, atol=1e-3, rtol=1e-4)


def test_kl_is_zero_only_for_equal_predictions() -> None:
    assert kl(TEACHER, TEACHER, 3.0).item() == pytest.approx(0, abs=1e-7)
    assert kl(TEACHER + 5, TEACHER, 3.0).item() == pytest.approx(0, abs=1e-6)
    assert kl(STUDENT, TEACHER, 3.0).item() > 0.01


def test_squared_temperature_keeps_the_gradients_scale() -> None:
    norms = []
    for temperature in (50.0, 100.0):
        student = STUDENT.clone().requires_grad_()
        kl(student, TEACHER, temperature).backward()
        assert student.grad is not None
        norms.append(student.grad.norm().item())
    assert norms[0] == pytest.approx(norms[1], rel=0.05)


def test_logit_mse() -> None:
    assert logit_mse(torch.tensor([[1.0], [2.0]]), torch.tensor([[2.0], [4.0]]), 7.0).item() == pytest.approx(2.5)
    assert logit_mse(torch.tensor([[2.0]]), torch.tensor([[4.0]]), 2.0, square=False).item() == pytest.approx(1.0)
