"""Golden numbers of the divergences of embeddings, against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stillery.parts.divergence import logit_mse
from stillery.parts.embedding import cosine, similarity, with_similarity

STUDENT = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, -2.0]])
TEACHER = torch.tensor([[4.0, 3.0], [0.0, 1.0], [0.0, -5.0]])


def test_cosine() -> None:
    """1 - (24/25, 0, 1), on average."""
    assert cosine(STUDENT, TEACHER).item() == pytest.approx(1 - (0.96 + 0 + 1) / 3, abs=1e-6)
    assert cosine(7 * STUDENT, TEACHER).item() == pytest.approx(cosine(STUDENT, TEACHER).item())
    assert cosine(STUDENT.bfloat16(), TEACHER).dtype == torch.float32


def test_similarity() -> None:
    """Student 0.6, -0.8, 0; teacher 0.6, -0.6, -1: each pair counts twice, a text with itself never."""
    assert similarity(STUDENT, TEACHER).item() == pytest.approx((0.0 + 0.2**2 + 1.0) / 3, abs=1e-6)
    random = np.random.default_rng(0)
    ours, theirs = random.normal(size=(5, 4)), random.normal(size=(5, 9))
    units = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in (ours, theirs)]
    gaps = (units[0] @ units[0].T - units[1] @ units[1].T)[~np.eye(5, dtype=bool)]
    found = similarity(torch.tensor(ours), torch.tensor(theirs))
    assert found.item() == pytest.approx(float((gaps**2).mean()), abs=1e-12)
    assert similarity(STUDENT[:1], TEACHER[:1]).item() == 0
    turned = TEACHER @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    assert similarity(turned, TEACHER).item() == pytest.approx(0, abs=1e-6)


def test_a_divergence_beside_similarities() -> None:
    for divergence in (cosine, logit_mse):
        both = with_similarity(STUDENT, TEACHER, divergence=divergence, weight=0.5)
        assert both.item() == pytest.approx((divergence(STUDENT, TEACHER) + 0.5 * similarity(STUDENT, TEACHER)).item())


def test_gradients_are_finite_at_the_teacher_and_at_zero() -> None:
    for start in (TEACHER, torch.zeros_like(TEACHER)):
        student = start.clone().requires_grad_()
        with_similarity(student, TEACHER, divergence=cosine, weight=1.0).backward()
        assert student.grad is not None and student.grad.isfinite().all()
