"""RAIL-KD's selection (golden 16): sorted, unique, in 1..N-1, constant within an epoch, each layer equally often."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillery.errors import UserError
from stillery.parts import pair
from stillery.recipe import Clock

depths = st.integers(2, 30).flatmap(lambda n: st.tuples(st.integers(2, n), st.just(n)))


@given(depths, st.integers(0, 1000), st.integers(0, 50), st.integers(0, 10_000))
def test_properties(depth: tuple[int, int], seed: int, epoch: int, step: int) -> None:
    student, teacher = depth
    pairs = pair.random_each_epoch(student, teacher, Clock(seed=seed, epoch=epoch))
    drawn = [j for _, j in pairs]
    assert [i for i, _ in pairs] == list(range(1, student))
    assert drawn == sorted(set(drawn)) and set(drawn) <= set(range(1, teacher))
    later = Clock(seed=seed, epoch=epoch, step=step, stage_step=step, stage_steps=10_000)
    assert pair.random_each_epoch(student, teacher, later) == pairs
    assert pair.random_together(student, teacher, later) == [(tuple(range(1, student)), tuple(drawn))]
    if student == teacher:
        assert pairs == [(i, i) for i in range(1, student)]


@pytest.mark.parametrize(("student", "teacher", "share"), [(6, 12, 5 / 11), (6, 24, 5 / 23), (3, 6, 2 / 5)])
def test_every_layer_is_drawn_equally_often(student: int, teacher: int, share: float) -> None:
    epochs, counts = 4000, np.zeros(teacher + 1)
    for epoch in range(epochs):
        counts[[j for _, j in pair.random_each_epoch(student, teacher, Clock(seed=1, epoch=epoch))]] += 1
    assert counts[0] == counts[teacher] == 0
    # Five standard deviations of a mean of 4000 draws.
    assert counts[1:teacher] / epochs == pytest.approx(share, abs=5 * (share * (1 - share) / epochs) ** 0.5)


def test_epochs_seeds_and_stages_draw_differently() -> None:
    def draws(clocks: list[Clock]) -> int:
        return len({tuple(pair.random_each_epoch(6, 12, clock)) for clock in clocks})

    assert draws([Clock(epoch=i) for i in range(40)]) > 30
    assert draws([Clock(seed=i) for i in range(40)]) > 30
    assert draws([Clock(stage=i) for i in range(40)]) > 30


def test_other_candidates() -> None:
    drawn = {
        j for epoch in range(50) for _, j in pair.random_each_epoch(3, 12, Clock(epoch=epoch), candidates=(2, 5, 9))
    }
    assert drawn == {2, 5, 9}
    with pytest.raises(UserError, match="only 3"):
        pair.random_each_epoch(6, 12, Clock(), candidates=(2, 5, 9))


@given(st.integers(1, 8), st.integers(0, 32))
def test_uniform_is_forward_without_the_embedding(student: int, more: int) -> None:
    teacher = student + more
    assert pair.uniform(student, teacher, Clock()) == pair.forward(student, teacher, Clock(), embedding=False)
    assert pair.uniform(student, teacher, Clock(), embedding=True) == pair.forward(student, teacher, Clock())


def test_uniform_lists_of_the_released_code() -> None:
    assert [j for _, j in pair.uniform(6, 12, Clock())] == [2, 4, 6, 8, 10, 12]
    assert [j for _, j in pair.uniform(4, 12, Clock(), embedding=True)] == [0, 3, 6, 9, 12]
    assert [j for _, j in pair.uniform(6, 24, Clock(), embedding=True)] == [0, 4, 8, 12, 16, 20, 24]


def test_uniform_lists_where_depths_do_not_divide() -> None:
    assert pair.uniform(3, 8, Clock()) == [(1, 3), (2, 6), (3, 8)]
    assert pair.uniform(5, 12, Clock(), embedding=True) == [(0, 0), (1, 3), (2, 5), (3, 8), (4, 10), (5, 12)]
