"""The spread over layer strategies: all permutations written out, and intervals that hold the true spread."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from making import predicted, scored

from stillery.study.resample import resample
from stillery.study.spread import seed_noise, smallest_p, spread

RANDOM = np.random.default_rng(7)


def all_spreads(scores: np.ndarray) -> np.ndarray:
    """The spread of the means for all orders of the strategies in all seeds."""
    orders = list(permutations(range(len(scores))))
    return np.array(
        [
            np.ptp(np.mean([scores[list(order), seed] for seed, order in enumerate(chosen)], axis=0))
            for chosen in product(orders, repeat=scores.shape[1])
        ]
    )


def test_noise_is_the_mean_over_all_permutations() -> None:
    scores = RANDOM.normal(80, 1, (3, 4)) + np.array([[0.0], [0.5], [1.5]])
    every, found = all_spreads(scores), seed_noise(scores)
    assert found.exact
    assert found.mean == pytest.approx(every.mean())
    assert found.high == pytest.approx(np.quantile(every, 0.95), abs=0.01)
    assert found.p == pytest.approx(np.mean(every >= np.ptp(scores.mean(axis=1)) - 1e-9))


def test_two_strategies_are_the_sign_test_of_all_differences() -> None:
    scores = RANDOM.normal(80, 1, (2, 6))
    apart = scores[0] - scores[1]
    signs = np.array(list(product((-1, 1), repeat=6)))
    expected = np.mean(np.abs((signs * apart).mean(axis=1)) >= abs(apart.mean()) - 1e-9)
    assert seed_noise(scores).p == pytest.approx(expected)


def test_drawn_permutations_are_near_all() -> None:
    # 24^4 orders are too many to try; fewer seeds of the same are not.
    scores = np.random.default_rng(1).normal(0, 1, (4, 5))
    found = seed_noise(scores)
    assert not found.exact
    other = seed_noise(scores, shuffles=40000, seed=9)
    assert found.mean == pytest.approx(other.mean, rel=0.02)
    assert found.p == pytest.approx(other.p, abs=0.02)
    # The seed's own level is no difference of strategies.
    assert seed_noise(scores + np.arange(5)).p == pytest.approx(found.p)


def test_the_smallest_p() -> None:
    for strategies, seeds in ((2, 4), (3, 3), (4, 2)):
        scores = np.arange(strategies)[:, None] + np.zeros(seeds)
        # Different steps, so that no other order is as far apart.
        scores = scores**2.0
        assert seed_noise(scores).p == pytest.approx(smallest_p(strategies, seeds))


def test_noise_alone_is_seldom_significant() -> None:
    random = np.random.default_rng(3)
    found = [seed_noise(random.normal(0, 1, (3, 4))).p for _ in range(300)]
    assert np.mean(np.array(found) <= 0.05) == pytest.approx(0.05, abs=0.03)


@pytest.mark.parametrize("truth", [(0, 0, 0, 0), (0, 0, 0, 3), (0, 1, 2, 3)])
def test_intervals_hold_the_true_spread(truth: tuple[int, ...]) -> None:
    random = np.random.default_rng(sum(truth))
    held, inside, observed = [], [], []
    for _ in range(120):
        scores = np.array(truth)[:, None] + random.normal(80, 1, (4, 5))
        results = scored({"task": dict(zip("abcd", scores, strict=True))})
        found = spread(resample(results, "task", draws=400), list("abcd"))
        assert found is not None
        held.append(found.low <= max(truth) <= found.high)
        inside.append(found.low <= found.value <= found.high)
        observed.append(found.value)
    assert np.mean(held) >= 0.93
    assert all(inside)
    if not any(truth):
        # What the interval is for: strategies that are all alike lie nearly a point apart.
        assert np.mean(observed) > 0.8


def test_examples_widen_the_interval() -> None:
    right = {name: RANDOM.random((4, 100)) < 0.8 for name in "abc"}
    results = predicted(right)
    both = spread(resample(results, "task"), list("abc"))
    one = spread(resample(predicted({name: values[:1] for name, values in right.items()}), "task"), list("abc"))
    assert both is not None
    assert one is not None
    assert both.low is not None and both.noise is not None
    # One seed: an interval for these models on other examples, and nothing on other seeds.
    assert one.low is not None
    assert one.noise is None
    assert one.seeds == (0,)


def test_missing_strategies_and_the_order_of_all() -> None:
    scores = {"forward": [80, 82, 81], "reverse": [79, 80, 82], "random": [None, 81, 83], "never": [np.nan] * 3}
    results = scored({"task": scores})
    found = spread(resample(results, "task"), list(scores))
    turned = spread(resample(results, "task"), list(scores)[::-1])
    assert found is not None
    assert turned is not None
    assert (found.missing, found.seeds) == (("never",), (1, 2))
    assert (found.value, found.low, found.high, found.noise) == (turned.value, turned.low, turned.high, turned.noise)
    assert (found.highest, found.lowest) == (turned.highest, turned.lowest)
    assert spread(resample(results, "task"), ["forward", "never"]) is None
