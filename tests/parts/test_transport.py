"""The cheapest flow between layers: golden numbers 5 and 6, its marginals, and two solvers that agree."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stillery.parts.transport import Transport, transport_plan

sizes = st.tuples(st.integers(1, 6), st.integers(1, 8))
seeds = st.integers(0, 10_000)


def problem(size: tuple[int, int], seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    weights = [w / w.sum() for w in (random.uniform(0.05, 1, length) for length in size)]
    return random.uniform(0, 3, size), weights[0], weights[1]


@pytest.fixture(params=["scipy", "pot"])
def solver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two ways to solve it: without POT, and with it."""
    if request.param == "scipy":
        monkeypatch.setitem(sys.modules, "ot", None)
    elif importlib.util.find_spec("ot") is None:
        pytest.skip("POT is not installed")
    return str(request.param)


def test_golden_5(solver: str) -> None:
    cost = np.array([[1, 2, 4], [3, 1.5, 1]])
    flow = transport_plan(cost, [0.5, 0.5], [1 / 3, 1 / 3, 1 / 3])
    assert (flow * cost).sum() == pytest.approx(1.25)
    assert flow == pytest.approx(np.array([[1 / 3, 1 / 6, 0], [0, 1 / 6, 1 / 3]]))


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_golden_5_a_diagonal_of_zeros_is_one_to_one(solver: str, layers: int) -> None:
    cost = 1 - np.eye(layers)
    flow = transport_plan(cost, np.ones(layers), np.ones(layers))
    assert (flow * cost).sum() == pytest.approx(0, abs=1e-12)
    assert flow == pytest.approx(np.eye(layers) / layers)


def test_marginals_are_the_weights(solver: str) -> None:
    for seed in range(10):
        cost, student, teacher = problem((1 + seed % 4, 1 + seed % 7), seed)
        flow = transport_plan(cost, 5 * student, teacher)
        assert flow.min() >= -1e-12
        assert flow.sum(1) == pytest.approx(student, abs=1e-9)
        assert flow.sum(0) == pytest.approx(teacher, abs=1e-9)


def test_weights_that_have_nearly_vanished(solver: str) -> None:
    student, teacher = np.array([1 - 1e-11, 1e-11]), np.array([1e-9, 0.5, 0.5 - 1e-9])
    cost = np.array([[1.0, 2, 3], [3, 2, 1]])
    flow = transport_plan(cost, student, teacher)
    assert flow.sum(0) == pytest.approx(teacher, abs=1e-7)
    assert flow.sum(1) == pytest.approx(student, abs=1e-7)


@settings(max_examples=40, deadline=None)
@given(sizes, seeds)
def test_no_flow_is_cheaper(size: tuple[int, int], seed: int) -> None:
    """Not the product of the weights, nor the flow of another cost; and the marginals hold."""
    cost, student, teacher = problem(size, seed)
    flow = transport_plan(cost, student, teacher)
    assert flow.sum(1) == pytest.approx(student, abs=1e-9) and flow.sum(0) == pytest.approx(teacher, abs=1e-9)
    others = [np.outer(student, teacher), transport_plan(problem(size, seed + 1)[0], student, teacher)]
    assert all((flow * cost).sum() <= (other * cost).sum() + 1e-9 for other in others)


@settings(max_examples=40, deadline=None)
@given(sizes, seeds)
def test_pot_and_scipy_agree_in_cost(size: tuple[int, int], seed: int) -> None:
    pytest.importorskip("ot")
    cost, student, teacher = problem(size, seed)
    by_pot = transport_plan(cost, student, teacher)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ot", None)
        by_scipy = transport_plan(cost, student, teacher)
    assert (by_pot * cost).sum() == pytest.approx((by_scipy * cost).sum(), rel=1e-9, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), seeds)
def test_golden_6_never_dearer_than_the_block_map(student: int, each: int, seed: int) -> None:
    cost = np.random.default_rng(seed).uniform(0, 3, (student, student * each))
    flow = transport_plan(cost, np.ones(student), np.ones(student * each))
    blocks = sum(cost[i, i * each : (i + 1) * each].sum() for i in range(student)) / (student * each)
    assert (flow * cost).sum() <= blocks + 1e-9


def test_only_a_training_step_waits_for_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards measure in one process alone: a flow that waited for the others there would wait for ever."""
    waited: list[torch.Tensor] = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", waited.append)
    flow, distances = Transport(2, 3, plan=transport_plan), torch.rand(6)
    alone = flow.eval()(distances, share=0.5)
    assert not waited and float(alone.sum()) == pytest.approx(1)
    torch.testing.assert_close(flow.train()(distances, share=0.5), alone)
    assert len(waited) == 1
