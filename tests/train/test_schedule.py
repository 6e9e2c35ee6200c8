"""Learning rate and stage lengths as functions of the step."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillery.train.learning_rate import learning_rate, stage_lengths


def test_rate_rises_then_falls_and_every_step_counts() -> None:
    rates = [learning_rate(1.0, step, 20, 0.1) for step in range(20)]
    assert rates[:3] == pytest.approx([0.5, 1.0, 1.0])
    assert all(late < early for early, late in pairwise(rates[2:]))
    assert min(rates) > 0
    assert learning_rate(1.0, 0, 20, 0.0) == 1.0
    assert learning_rate(1.0, 19, 20, 1.0) == pytest.approx(1.0)


@given(st.lists(st.floats(0.1, 20), min_size=1, max_size=4), st.integers(0, 500))
def test_stages_share_out_every_step(shares: list[float], more: int) -> None:
    steps = len(shares) + more
    lengths = stage_lengths(steps, shares)
    assert sum(lengths) == steps
    assert min(lengths) >= 1
