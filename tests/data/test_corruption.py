"""Label noise: golden number 21."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillery.data.schema.subsets import flip_labels
from stillery.errors import UserError


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.floats(0, 1), st.integers(0, 1000))
def test_golden_21_flipped_labels_differ_and_the_rate_is_met(classes: int, rate: float, seed: int) -> None:
    labels = np.arange(4000) % classes
    noisy, flipped = flip_labels(labels, classes, rate, seed)
    assert set(np.flatnonzero(noisy != labels)) == set(flipped)
    assert noisy.min() >= 0 and noisy.max() < classes
    assert abs(len(flipped) / len(labels) - rate) < 0.04
    again, _ = flip_labels(labels, classes, rate, seed)
    assert np.array_equal(again, noisy)


def test_golden_21_two_classes_and_rate_one_invert() -> None:
    labels = np.array([0, 1, 1, 0, 1])
    assert np.array_equal(flip_labels(labels, 2, 1.0)[0], 1 - labels)
    assert np.array_equal(flip_labels(labels, 2, 0.0)[0], labels)


def test_every_other_class_is_as_likely() -> None:
    noisy, _ = flip_labels(np.zeros(9000, dtype=np.int64), 4, 1.0, seed=3)
    counts = np.bincount(noisy, minlength=4)
    assert counts[0] == 0
    assert counts[1:].min() > 2800


def test_what_cannot_be_flipped_is_refused() -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        flip_labels(np.array([0, 1]), 2, 1.5)
    with pytest.raises(UserError, match="two classes"):
        flip_labels(np.array([0, 0]), 1, 0.5)
