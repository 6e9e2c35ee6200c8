"""BERT-EMD against numpy: a linear program of its own, the costs of states and attention, and the layers' weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from changed_options import Options
from fixed_traces import Case, case, mask_of
from plain_numpy import Arrays, attention, hard, linear, mean_square, same, score_square, seen, soft, words
from scipy.optimize import linprog

from stillery import methods
from stillery.data.tokens.batches import Batch
from stillery.models.family import sizes
from stillery.models.load_model import load_classifier
from stillery.models.student import StudentShape, build, student_sizes
from stillery.models.wanted_outputs import Wanted
from stillery.parts.transport import Transport, transport_plan
from stillery.recipe import Clock
from stillery.train.microbatches import MicroBatch
from stillery.train.objective import Needs, Objective
from stillery.train.teacher import LiveTeacher


def least_cost(costs: np.ndarray, student: np.ndarray, teacher: np.ndarray) -> tuple[float, np.ndarray]:
    """The cheapest flow: sum_j F_ij = w_i, sum_i F_ij = u_j."""
    rows, columns = costs.shape
    conditions = np.zeros((rows + columns, rows, columns))
    for i in range(rows):
        conditions[i, i, :] = 1
    for j in range(columns):
        conditions[rows + j, :, j] = 1
    found = linprog(costs.ravel(), A_eq=conditions.reshape(rows + columns, -1), b_eq=np.concatenate([student, teacher]))
    return found.fun, found.x.reshape(rows, columns)


def costs_of(at: Case, w_h: torch.nn.Linear | None) -> dict[str, np.ndarray]:
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    depth, teacher_depth = at.sizes[:2]

    def states(layer: int) -> np.ndarray:
        return linear(words(ours.hidden[layer]), w_h) if w_h is not None else words(ours.hidden[layer])

    def scores(layer: int) -> Arrays:
        return attention(ours, layer)

    inner, outer = range(1, depth + 1), range(1, teacher_depth + 1)
    return {
        "hidden": np.array([[mean_square(states(i), words(theirs.hidden[j])) for j in outer] for i in inner]),
        "attention": np.array([[score_square(scores(i), attention(theirs, j)) for j in outer] for i in inner]),
    }


@pytest.mark.parametrize("size", [(2, 4, 12), (2, 4, 8), (3, 6, 8), (3, 4, 12)])
@pytest.mark.parametrize("always", [True, False])
def test_bert_emd(size: tuple[int, int, int], always: bool) -> None:
    at = case(*size)
    found, projections, _ = at.terms("bert-emd", always_project=always, hard_weight=0.1)
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    mapped = always or size[2] == 8
    assert set(projections) == ({"hidden", "embedding"} if mapped else set())
    w_h, w_e = (projections[name].student[0] for name in ("hidden", "embedding")) if mapped else (None, None)
    embedding = linear(words(ours.hidden[0]), w_e) if w_e is not None else words(ours.hidden[0])
    uniform = np.full(size[0], 1 / size[0]), np.full(size[1], 1 / size[1])
    expected = {name: least_cost(costs, *uniform)[0] for name, costs in costs_of(at, w_h).items()}
    same(
        found,
        expected
        | {
            "embedding": mean_square(embedding, words(theirs.hidden[0])),
            "hard": hard(ours.logits),
            "soft": soft(ours.logits, theirs.logits, 1),
        },
    )


def test_the_layers_weights_follow_their_costs() -> None:
    """Three steps by hand: w_i <- w_i / c_i, normalised, c_i = sum_j F_ij D_ij; the same for the teacher's."""
    at = case(2, 4, 8)
    found, projections, flows = at.terms("bert-emd")
    costs = costs_of(at, projections["hidden"].student[0])
    weights = {name: (np.full(2, 0.5), np.full(4, 0.25)) for name in costs}
    for step in range(3):
        for name, (student, teacher) in weights.items():
            cost, flow = least_cost(costs[name], student, teacher)
            assert found[name].item() == pytest.approx(cost, rel=1e-5), (name, step)
            paid = flow * costs[name]
            student, teacher = student / paid.sum(1), teacher / paid.sum(0)
            weights[name] = student / student.sum(), teacher / teacher.sum()
            flows[name].update(new_epoch=False)
            assert flows[name].student.numpy() == pytest.approx(weights[name][0], rel=1e-5)
            assert flows[name].teacher.numpy() == pytest.approx(weights[name][1], rel=1e-5)
        found, _, _ = at.terms("bert-emd", None, projections, flows)


def test_golden_5_flow_and_new_weights() -> None:
    costs = torch.tensor([1, 2, 4, 3, 1.5, 1])
    flow = Transport(2, 3, plan=transport_plan)
    plan = flow(costs)
    assert (plan * costs).sum().item() == pytest.approx(1.25)
    assert plan.tolist() == pytest.approx([1 / 3, 1 / 6, 0, 0, 1 / 6, 1 / 3])
    flow.update(new_epoch=False)
    assert flow.student.tolist() == pytest.approx([0.46666667, 0.53333333])
    assert flow.teacher.tolist() == pytest.approx([0.38888889, 0.22222222, 0.38888889])


def test_golden_5_equal_costs_keep_weights_equal() -> None:
    flow = Transport(2, 3, plan=transport_plan)
    for _ in range(3):
        flow(torch.full((6,), 2.5))
        flow.update(new_epoch=False)
    assert flow.student.tolist() == pytest.approx([1 / 2] * 2)
    assert flow.teacher.tolist() == pytest.approx([1 / 3] * 3)


def test_weights_stay_where_they_are_not_to_change() -> None:
    fixed, epochs = (
        Transport(2, 2, plan=transport_plan, reweighed=False),
        Transport(2, 2, plan=transport_plan, each_epoch=True),
    )
    for flow in (fixed, epochs):
        flow(torch.tensor([1.0, 9, 9, 4]))
        flow.update(new_epoch=False)
    assert fixed.student.tolist() == [0.5, 0.5]
    assert epochs.student.tolist() == pytest.approx([0.8, 0.2])
    epochs(torch.tensor([1.0, 9, 9, 4]))
    epochs.update(new_epoch=True)
    assert epochs.student.tolist() == [0.5, 0.5]


def test_zero_costs_leave_weights_finite() -> None:
    flow = Transport(2, 2, plan=transport_plan)
    for _ in range(3):
        flow(torch.tensor([0.0, 1, 1, 1]))
        flow.update(new_epoch=False)
        assert torch.isfinite(flow.student).all() and flow.student.sum().item() == pytest.approx(1)


def test_looking_without_training_changes_no_weight() -> None:
    flow = Transport(2, 2, plan=transport_plan).eval()
    flow(torch.tensor([1.0, 9, 9, 4]))
    flow.update(new_epoch=False)
    assert flow.student.tolist() == [0.5, 0.5]


def test_a_diagonal_of_zero_costs_is_one_to_one() -> None:
    at = case(4, 4)
    found, _, _ = replace(at, student=at.teacher).terms("bert-emd", always_project=False)
    assert [found[name].item() for name in ("hidden", "attention", "embedding")] == [0, 0, 0]


def test_the_gradient_flows_through_the_costs_alone() -> None:
    costs = torch.tensor([1, 2, 4, 3, 1.5, 1], requires_grad=True)
    flow = Transport(2, 3, plan=transport_plan)(costs)
    assert not flow.requires_grad
    (flow * costs).sum().backward()
    assert torch.equal(costs.grad, flow)  # type: ignore[arg-type]


@pytest.mark.parametrize("separate", [False, True])
def test_states_and_attention_share_the_mean_of_their_weights(separate: bool, tiny_teacher: Path) -> None:
    """After a step of two layers' training: each flow's own new weights, or the mean of both."""
    loaded = load_classifier(str(tiny_teacher))
    layers = set(range(5))
    needs: Needs = {None: Wanted(hidden=layers, query=layers - {0}, key=layers - {0})}
    made = torch.Generator().manual_seed(0)
    inputs = {"input_ids": torch.randint(1000, 2000, (3, 7), generator=made), "attention_mask": mask_of((7, 4, 2), 7)}
    shown = LiveTeacher(loaded.model)(inputs, needs)
    wanted = student_sizes(StudentShape(layers=2), loaded.model.config, "teacher")
    student = build(teacher=loaded, source=loaded, wanted=wanted, init="random", seed=3).model
    stages = methods.build("bert-emd", {"separate": separate}).stages
    objective = Objective(student, stages, teacher=sizes(loaded.model.config), seed=0)
    batch = Batch(index=np.arange(3), ids=("a", "b", "c"), inputs=inputs, labels=None)
    share = {"examples": 1.0, "tokens": 1.0, "pairs": 1.0}
    objective(objective.plan(Clock()), MicroBatch(batch=batch, share=share, places=torch.arange(3)), {"plain": shown})
    flows = [objective.flows["0"][name] for name in ("hidden", "attention")]
    alone = []
    for flow in flows:
        (student_paid, teacher_paid) = flow.seen[0]
        alone.append([torch.ones(n) / n / paid for n, paid in ((2, student_paid), (4, teacher_paid))])
    alone = [[weights / weights.sum() for weights in sides] for sides in alone]
    objective.after_step(new_epoch=False)
    for place, flow in enumerate(flows):
        for side, weights in enumerate((flow.student, flow.teacher)):
            own = alone[place][side]
            expected = own if separate else (alone[0][side] + alone[1][side]) / 2
            assert weights.tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    assert torch.equal(flows[0].teacher, flows[1].teacher) != separate


def test_options() -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard", "hard"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "layer_weight": (2.0, {"weight hidden", "weight attention", "weight embedding"}),
        "reweighed": (False, {"flow hidden", "flow attention"}),
        "separate": (True, {"flow hidden", "flow attention"}),
        "always_project": (False, {"hidden", "embedding"}),
        "normalise": ("token", {"hidden", "embedding"}),
    }
    Options("bert-emd", case(), rows).check()
