"""Which pairs of sentences are drawn."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from stillery.data.tasks.synthetic_pairs import Window, draw_pairs
from stillery.errors import UserError

TOKENS = np.array([5, 9, 2, 7, 7, 30, 4, 11])


def fitting(window: Window) -> set[frozenset[int]]:
    return {
        frozenset(pair)
        for pair in combinations(range(len(TOKENS)), 2)
        if window.fewest <= sum(TOKENS[row] for row in pair) + window.special <= window.most
    }


@pytest.mark.parametrize("bounds", [(15, 19), (0, 99), (17, 17)])
def test_every_pair_that_fits_and_no_other(bounds: tuple[int, int]) -> None:
    window = Window(fewest=bounds[0], most=bounds[1], special=3)
    there = fitting(window)
    drawn = draw_pairs(TOKENS, window, len(there), 0, "a.txt")
    pairs = list(zip(drawn.first.tolist(), drawn.second.tolist(), strict=True))
    assert {frozenset(pair) for pair in pairs} == there
    assert drawn.lengths.tolist() == [TOKENS[one] + TOKENS[other] + 3 for one, other in pairs]
    with pytest.raises(
        UserError, match=rf"a.txt: its 8 sentences make {len(there)} pairs of {bounds[0]} to {bounds[1]}"
    ):
        draw_pairs(TOKENS, window, len(there) + 1, 0, "a.txt")


def test_each_is_as_likely() -> None:
    window, draws = Window(fewest=15, most=19, special=3), 3000
    there = fitting(window)
    drawn = [draw_pairs(TOKENS, window, 2, seed, "a.txt") for seed in range(draws)]
    seen = Counter(
        frozenset(pair) for one in drawn for pair in zip(one.first.tolist(), one.second.tolist(), strict=True)
    )
    expected = 2 * draws / len(there)
    assert seen.keys() == there
    assert all(abs(count - expected) < 5 * expected**0.5 for count in seen.values()), seen
    shorter_first = sum(int((TOKENS[one.first] < TOKENS[one.second]).sum()) for one in drawn)
    assert 0.3 < shorter_first / (2 * draws) < 0.7, "neither place is that of the shorter sentence"
