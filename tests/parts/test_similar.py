"""The pairing of the most similar layers against every choice there is."""

from __future__ import annotations

from functools import partial
from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillery.errors import UserError
from stillery.models.similarity import cka
from stillery.parts import distance, pair, represent
from stillery.recipe import Clock, Match, Stage
from stillery.similarity_pairing import asks, check_measured, unmeasured, with_similarity


def total(similarity: np.ndarray, teachers) -> float:
    return sum(similarity[row, column] for row, column in enumerate(teachers, start=1))


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10_000), ours=st.integers(1, 6), theirs=st.integers(1, 7))
def test_no_other_choice_in_order_is_more_similar(seed: int, ours: int, theirs: int) -> None:
    similarity = np.random.default_rng(seed).normal(size=(ours + 1, theirs + 1)).round(1)
    met = pair.similar(ours, theirs, Clock(), similarity=similarity.tolist())
    assert [student for student, _ in met] == list(range(1, ours + 1))
    teachers = [teacher for _, teacher in met]
    choices = combinations if ours <= theirs else combinations_with_replacement
    best = max(total(similarity, chosen) for chosen in choices(range(1, theirs + 1), ours))
    assert total(similarity, teachers) == pytest.approx(best)
    assert teachers == sorted(teachers) and (ours > theirs or len(set(teachers)) == ours)


def test_a_similarity_of_other_depths_is_refused() -> None:
    with pytest.raises(UserError, match="of 2 x 4 layers, the models have 3 x 4"):
        pair.similar(3, 4, Clock(), similarity=np.zeros((3, 5)).tolist())


def test_the_embedding_meets_the_embedding_where_that_is_asked_for() -> None:
    similarity = np.eye(3).tolist()
    assert pair.similar(2, 2, Clock(), similarity=similarity, embedding=True) == [(0, 0), (1, 1), (2, 2)]


def test_a_pairing_is_given_what_it_asks_for_and_no_run_trains_without() -> None:
    match = Match(
        name="m", represent=represent.tokens, pair=partial(pair.similar, embedding=True), distance=distance.mse
    )
    other = Match(name="o", represent=represent.tokens, pair=pair.forward, distance=distance.mse)
    stage = Stage(matches=(match, other))
    assert asks(match) and not asks(other)
    with pytest.raises(UserError, match="match m: its pairing needs the similarity"):
        check_measured([stage])
    assert not asks(unmeasured(match, 2, 4)) and unmeasured(other, 2, 4) is other
    similarity = [[1, 0, 0], [0, 0.1, 0.9]]
    (done,) = with_similarity([stage], lambda stage, match: similarity)
    check_measured([done])
    assert done.matches[0].pairs(1, 2, Clock()) == [(0, 0), (1, 2)] and done.matches[1] == other


def test_cka_does_not_depend_on_rotation_scale_or_width() -> None:
    random = np.random.default_rng(3)
    rows, other = random.normal(size=(20, 50)), random.normal(size=(20, 8))
    turned = rows @ np.linalg.qr(random.normal(size=(50, 50)))[0] * 7 + 3
    assert cka(rows, turned) == pytest.approx(1)
    assert cka(rows, other) == pytest.approx(cka(turned, other))
    assert cka(rows, other) == pytest.approx(cka(other, rows))
    # The unbiased estimate: unrelated rows of many dimensions are not alike.
    many = [cka(random.normal(size=(20, 300)), random.normal(size=(20, 300))) for _ in range(50)]
    assert abs(np.mean(many)) < 0.05
    assert cka(rows[:3], rows[:3]) == pytest.approx(1) and cka(rows, np.zeros((20, 4))) == 0
