"""Golden number 11: what MixUp adds to a quadratic loss in expectation (CR-ILD, theorem A.3)."""

from __future__ import annotations

import numpy as np
import pytest

from stillery.parts.mix import draw

ALPHA, SLOPE, CURVE, STEP = 1.7, 0.8, 2.3, 1.1  # a, D, H, v


def square(shift: float) -> float:
    """The bracket of the theorem as a completed square, with the given shift inside the norm."""
    second = (ALPHA + 1) / (2 * ALPHA + 1)
    rest = (2 * ALPHA + 1) / (2 * ALPHA + 2) * SLOPE**2 / CURVE
    return 0.5 * second * CURVE * (STEP + shift) ** 2 - rest


def test_golden_11() -> None:
    second = (ALPHA + 1) / (2 * ALPHA + 1)
    bracket = SLOPE * STEP + 0.5 * second * CURVE * STEP**2
    assert bracket == pytest.approx(1.733875, abs=1e-6)
    assert square((2 * ALPHA + 1) / (ALPHA + 1) * SLOPE / CURVE) == pytest.approx(1.733875, abs=1e-6)
    # As printed, the shift lacks its denominator.
    assert square((2 * ALPHA + 1) * SLOPE / CURVE) == pytest.approx(4.656013, abs=1e-6)


def test_our_lambdas_give_the_theorems_expectation() -> None:
    lambdas = np.array([draw(2, ALPHA, "random", (seed,))[0] for seed in range(20_000)])
    assert lambdas.mean() == pytest.approx(0.5, abs=0.01)
    assert (lambdas**2).mean() == pytest.approx((ALPHA + 1) / (4 * ALPHA + 2), abs=0.01)
    added = (SLOPE * lambdas * STEP + 0.5 * CURVE * (lambdas * STEP) ** 2).mean()
    assert added == pytest.approx(1.733875 / 2, abs=0.02)
