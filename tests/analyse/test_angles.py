"""Angles: golden number 14 and its properties."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stillery.analyse.angles import angle_cosine, angles


def test_golden_14() -> None:
    student, first, second = torch.zeros(2), torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])
    assert angle_cosine(student, first, second).item() == pytest.approx(0.70710628, abs=1e-7)
    between = (first + second) / 2
    assert angle_cosine(between, first, second).item() == pytest.approx(-1, abs=1e-4)
    assert angle_cosine(student, second, second).item() == pytest.approx(1, abs=1e-5)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.5, 20))
def test_golden_14_is_symmetric_and_does_not_depend_on_the_frame(seed: int, scale: float) -> None:
    made = torch.Generator().manual_seed(seed)
    student, first, second, shift = torch.randn(4, 3, 5, generator=made, dtype=torch.float64)
    rotation, _ = torch.linalg.qr(torch.randn(5, 5, generator=made, dtype=torch.float64))
    plain = angle_cosine(student, first, second)
    torch.testing.assert_close(angle_cosine(student, second, first), plain)
    moved = [(state + shift) @ rotation * scale for state in (student, first, second)]
    torch.testing.assert_close(angle_cosine(*moved), plain, atol=1e-4, rtol=0)


def test_padding_does_not_count() -> None:
    made = torch.Generator().manual_seed(0)
    student, first, second = torch.randn(3, 2, 4, 6, generator=made)
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    found = angles(student, first, second, mask, bins=10)
    assert sum(found.histogram) == 4
    for state in (student, first, second):
        state[mask == 0] = 1e6
    assert angles(student, first, second, mask, bins=10) == found
    values = angle_cosine(student, first, second)[mask == 1]
    assert found.mean == pytest.approx(values.mean().item(), abs=1e-6)
    assert found.acute == pytest.approx((values > 0).double().mean().item())
