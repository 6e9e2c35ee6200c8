"""Pairings against the papers' index lists (golden number 13)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillery.parts import pair
from stillery.recipe import Clock

# Student depth to teacher modules, 0-based, as the released layer-selection code lists them.
RELEASED = {
    (12, 1): [11],
    (12, 2): [5, 11],
    (12, 3): [3, 7, 11],
    (12, 4): [2, 5, 8, 11],
    (12, 6): [1, 3, 5, 7, 9, 11],
    (12, 9): [1, 2, 3, 5, 6, 7, 9, 10, 11],
    (36, 9): [3, 7, 11, 15, 19, 23, 27, 31, 35],
    (28, 7): [3, 7, 11, 15, 19, 23, 27],
}
depths = st.integers(1, 40).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n)))


@pytest.mark.parametrize(("depths", "modules"), RELEASED.items())
def test_forward_is_the_released_list(depths: tuple[int, int], modules: list[int]) -> None:
    teacher, student = depths
    pairs = pair.forward(student, teacher, Clock())
    assert pairs == [(0, 0)] + [(i, module + 1) for i, module in enumerate(modules, start=1)]


def test_forward_where_depths_do_not_divide() -> None:
    assert pair.forward(3, 8, Clock(), embedding=False) == [(1, 3), (2, 6), (3, 8)]
    assert [j for _, j in pair.forward(6, 24, Clock(), embedding=False)] == [4, 8, 12, 16, 20, 24]


def test_reverse_all_to_one_and_pkd_lists() -> None:
    assert pair.reverse(3, 12, Clock()) == [(0, 0), (1, 12), (2, 8), (3, 4)]
    assert pair.all_to_one(3, 12, Clock()) == [(i, 6) for i in range(4)]
    assert [pair.all_to_one(2, n, Clock())[0][1] for n in (36, 8, 6)] == [18, 4, 3]
    assert [j for _, j in pair.skip(6, 12, Clock())] == [2, 4, 6, 8, 10]
    assert [j for _, j in pair.skip(4, 12, Clock())] == [3, 6, 9]
    assert [j for _, j in pair.skip(6, 24, Clock())] == [4, 8, 12, 16, 20]
    assert [j for _, j in pair.skip(3, 24, Clock())] == [8, 16]
    assert [j for _, j in pair.skip(8, 12, Clock())] == [1, 2, 3, 4, 5, 6, 7]
    assert [j for _, j in pair.last(6, 12, Clock())] == [7, 8, 9, 10, 11]
    assert pair.last(3, 12, Clock()) == [(1, 10), (2, 11)]


@given(depths)
def test_properties_of_every_depth(depth: tuple[int, int]) -> None:
    student, teacher = depth
    forward = pair.forward(student, teacher, Clock(), embedding=False)
    reverse = pair.reverse(student, teacher, Clock(), embedding=False)
    assert [i for i, _ in forward] == list(range(1, student + 1))
    assert forward[-1] == (student, teacher)
    assert [j for _, j in forward] == [j for _, j in reverse][::-1]
    assert len({j for _, j in forward}) == student
    assert len(pair.all_to_one(student, teacher, Clock())) == student + 1
    if student == teacher:
        assert forward == [(i, i) for i in range(1, student + 1)]
    if teacher % student == 0:
        assert pair.skip(student, teacher, Clock()) == forward[:-1]
    for pairing in (pair.skip, pair.last):
        assert all(1 <= i < student and 1 <= j < teacher for i, j in pairing(student, teacher, Clock()))


@given(depths, st.integers(0, 1000))
def test_random_is_one_permutation_of_the_forward_layers(depth: tuple[int, int], seed: int) -> None:
    student, teacher = depth
    drawn = pair.fixed_random(student, teacher, Clock(seed=seed))
    assert drawn[0] == (0, 0)
    assert sorted(j for _, j in drawn) == sorted(j for _, j in pair.forward(student, teacher, Clock()))
    later = Clock(seed=seed, epoch=7, step=1234)
    assert pair.fixed_random(student, teacher, later) == drawn


def test_random_depends_on_the_seed_and_is_not_sorted() -> None:
    draws = {tuple(j for _, j in pair.fixed_random(6, 12, Clock(seed=seed))) for seed in range(40)}
    assert len(draws) > 30
    assert any(list(draw) != sorted(draw) for draw in draws)
