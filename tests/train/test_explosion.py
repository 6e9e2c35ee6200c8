"""A loss that has exploded is distinguished from what healthy runs do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stillery.train.explosion import Explosion, LossWatch


def watched(
    losses: Sequence[float],
    terms: Sequence[float] | None = None,
    *,
    window: int = 32,
    per_epoch: int = 1000,
    squared: bool = False,
) -> Explosion | None:
    """The first explosion that is seen in the losses of a stage that begins at step 7 of its run."""
    names = () if terms is None else ("hard",)
    watch = LossWatch(start=6, window=window, per_epoch=per_epoch, terms=names, squared=squared)
    rows = [{"loss": loss} for loss in losses] if terms is None else [
        {"loss": loss, "hard": term} for loss, term in zip(losses, terms, strict=True)
    ]  # fmt: skip
    found = (watch.see(step, row) for step, row in enumerate(rows, start=7))
    return next((one for one in found if one is not None), None)


def test_a_loss_that_stays_far_above_its_start_has_exploded() -> None:
    losses = [0.7, 0.9, 4.0, *[20.0, 15.0, 30.0] * 6]
    assert watched(losses, losses) == Explosion(step=17, start=0.7, now=17.5, term="hard")


HEALTHY = {
    "it falls": ([0.7 / (1 + step / 10) for step in range(60)], None),
    "a few bad batches": ([0.7, *[0.6, 0.5, 40.0, 0.5] * 15], None),
    "the weight of a term of layers rises": ([1.0 + 10 * step for step in range(60)], [0.7] * 60),
    "a student that starts as its teacher": ([0.001, *[1.2] * 60], [0.001, *[1.2] * 60]),
    "a harder stretch of the data": ([1.0, *[3.0] * 60], [1.0, *[3.0] * 60]),
}


@pytest.mark.parametrize("what", HEALTHY)
def test_what_healthy_runs_do_is_none(what: str) -> None:
    losses, terms = HEALTHY[what]
    assert watched(losses, terms or losses) is None


def test_the_start_is_a_mean_over_enough_examples() -> None:
    losses = [0.01, 6.0, *[5.0] * 30]
    assert watched(losses, losses, window=8) is not None
    assert watched(losses, losses, window=1) is None


def test_a_squared_error_may_rise_further() -> None:
    losses = [1.0, *[8.0] * 30]
    assert watched(losses, losses) is not None and watched(losses, losses, squared=True) is None


def test_layers_alone_are_compared_within_an_epoch() -> None:
    """Layers that are drawn anew for an epoch may be far more apart than those before."""
    drawn = [1.0] * 20 + [500.0] * 20
    assert watched(drawn, per_epoch=20) is None
    found = watched(drawn, per_epoch=40)
    assert found is not None and found.term is None and found.now > 100 * found.start
