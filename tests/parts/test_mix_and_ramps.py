"""MixUp, the draw of its weight and partners, and ramps (golden number 10)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stillery.parts.mix import draw, mixed_mask, mixup
from stillery.parts.schedule import epoch_ramp, ramp
from stillery.recipe import Clock


@pytest.mark.parametrize("shape", [(4, 3), (4, 5, 3), (4, 2, 5, 5)])
def test_mixup_is_the_weighed_sum_with_each_ones_partner(shape: tuple[int, ...]) -> None:
    values, partner = torch.randn(shape), torch.tensor([2, 0, 3, 3])
    array = values.numpy()
    expected = np.stack([0.3 * array[i] + 0.7 * array[j] for i, j in enumerate(partner.tolist())])
    np.testing.assert_allclose(mixup(values, 0.3, partner).numpy(), expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(mixup(values, 1.0, partner), values)
    assert torch.equal(mixup(values, 0.0, partner), values[partner])


def test_masks_of_mixed_examples() -> None:
    mask, partner = torch.tensor([[1, 1, 1], [1, 0, 0]]), torch.tensor([1, 0])
    assert mixed_mask(mask, 0.5, partner).tolist() == [[1, 1, 1], [1, 1, 1]]
    assert mixed_mask(mask, 1.0, partner).tolist() == mask.tolist()
    assert mixed_mask(mask, 0.0, partner).tolist() == mask.flip(0).tolist()


@given(st.integers(1, 40), st.floats(0.1, 5), st.integers(0, 1000))
def test_draws_are_a_function_of_the_seed(size: int, alpha: float, seed: int) -> None:
    lam, partners = draw(size, alpha, "random", (seed, 3))
    assert 0 <= lam <= 1 and [partners[partner] for partner in partners] == list(range(size)), "partners are mutual"
    assert sum(partner == own for own, partner in enumerate(partners)) == size % 2
    assert draw(size, alpha, "random", (seed, 3)) == (lam, partners)
    assert draw(size, alpha, "reverse", (seed, 3))[1] == list(range(size))[::-1]
    assert draw(size, alpha, "random", (seed, 3), larger=True)[0] == max(lam, 1 - lam)


def test_every_partner_is_as_likely() -> None:
    drawn = np.array([draw(6, 1.0, "random", (seed, 3))[1] for seed in range(3000)])
    for own in range(6):
        counts = np.bincount(drawn[:, own], minlength=6)
        assert counts[own] == 0 and (abs(np.delete(counts, own) - 600) < 110).all()


def test_lambda_has_the_moments_of_its_distribution() -> None:
    """E[lambda] = 1/2 and E[lambda^2] = (a + 1) / (4a + 2); of max(lambda, 1 - lambda) at a = 1, 3/4 and 7/12."""
    for alpha in (1.0, 0.4):
        drawn = np.array([draw(1, alpha, "random", (seed,))[0] for seed in range(4000)])
        assert drawn.mean() == pytest.approx(0.5, abs=0.03)
        assert (drawn**2).mean() == pytest.approx((alpha + 1) / (4 * alpha + 2), abs=0.03)
    larger = np.array([draw(1, 1.0, "random", (seed,), larger=True)[0] for seed in range(4000)])
    assert larger.mean() == pytest.approx(3 / 4, abs=0.02) and (larger**2).mean() == pytest.approx(7 / 12, abs=0.02)


def test_golden_10_ramp_by_steps() -> None:
    values = [ramp(Clock(stage_step=t, stage_steps=80), weight=1.0) for t in (0, 40, 80, 100)]
    assert values == [0, 0.5, 1, 1]
    assert [ramp(Clock(stage_step=t, stage_steps=80), weight=0.1, steps=20) for t in (0, 10, 20, 79)] == [
        0,
        0.05,
        0.1,
        0.1,
    ]


def test_golden_10_ramp_by_epochs() -> None:
    values = [epoch_ramp(Clock(epoch=e, stage_epochs=20), weight=1.0) for e in range(20)]
    assert values == pytest.approx([0.05 * e for e in range(20)])
