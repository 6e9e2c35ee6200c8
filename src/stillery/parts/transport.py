"""Many-to-many layer matching by the earth mover's distance: BERT-EMD, EMD-ILD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from stillery import declare
from stillery.recipe import Clock, Pairs

__all__ = ["Transport", "all_to_all", "reweigh", "transport_plan"]


def transport_plan(cost: ArrayLike, student_weights: ArrayLike, teacher_weights: ArrayLike) -> NDArray[np.float64]:
    """The optimal transport plan [M, N] between the student layers' and the teacher layers' weights.

    Weights are normalised first. It is solved exactly, by POT where that is installed, else by SciPy's linear
    programming. There may be several optimal plans, of the same cost.
    """
    costs = np.ascontiguousarray(cost, dtype=np.float64)
    ours, theirs = (np.asarray(weights, dtype=np.float64) for weights in (student_weights, teacher_weights))
    ours, theirs = ours / ours.sum(), theirs / theirs.sum()
    try:
        import ot
    except ImportError:
        return _linear_program(costs, ours, theirs)
    return np.asarray(ot.emd(ours, theirs, costs), dtype=np.float64)


def _linear_program(
    cost: NDArray[np.float64], student: NDArray[np.float64], teacher: NDArray[np.float64]
) -> NDArray[np.float64]:
    from scipy.optimize import linprog

    rows, columns = cost.shape
    leaving, arriving = np.kron(np.eye(rows), np.ones(columns)), np.kron(np.ones(rows), np.eye(columns))
    # The last condition follows from the others; with it, rounding can make the program infeasible.
    conditions = np.vstack([leaving, arriving])[:-1]
    largest = max(float(np.abs(cost).max()), np.finfo(np.float64).tiny)
    solved = linprog(
        (cost / largest).ravel(), A_eq=conditions, b_eq=np.concatenate([student, teacher])[:-1], method="highs"
    )
    return np.asarray(solved.x, dtype=np.float64).reshape(rows, columns)


@declare.pairing(
    "transport",
    "every student layer with every teacher layer, weighted by optimal transport",
    uses={"flow": ("transport", {"plan": transport_plan})},
)
def all_to_all(student_layers: int, teacher_layers: int, clock: Clock) -> Pairs:
    """BERT-EMD: every student layer with every teacher layer, in row-major order, for a transport flow."""
    return [(i, j) for i in range(1, student_layers + 1) for j in range(1, teacher_layers + 1)]


def reweigh(weights: Tensor, costs: Tensor) -> Tensor:
    """BERT-EMD's cost attention: a layer's new weight is its old one divided by the cost of its flow, normalised.

    Layers of low cost gain weight. A cost of zero is clamped.
    """
    changed = weights / costs.clamp_min(1e-12)
    return changed / changed.sum()


@declare.flow("transport", "the optimal transport plan between the layers' weights")
class Transport(nn.Module):
    """The weights of the layers, and the optimal transport plan between them for given distances.

    `plan` computes the plan. The weights are state: `update` changes them once per optimiser step, and they are saved
    with a checkpoint. `reweighed` turns the update on or off, `each_epoch` resets the weights every epoch (the released
    CR-ILD code), and flows that are `shared` average their weights after each step (the released BERT-EMD code).
    """

    student: Tensor
    teacher: Tensor

    def __init__(
        self,
        student_layers: int,
        teacher_layers: int,
        *,
        plan: Callable[[Any, Any, Any], Any],
        reweighed: bool = True,
        each_epoch: bool = False,
        shared: bool = False,
    ) -> None:
        super().__init__()
        self.plan, self.reweighed, self.each_epoch, self.shared = plan, reweighed, each_epoch, shared
        self.register_buffer("student", torch.full((student_layers,), 1 / student_layers))
        self.register_buffer("teacher", torch.full((teacher_layers,), 1 / teacher_layers))
        self.seen: list[tuple[Tensor, Tensor]] = []

    def forward(self, distances: Tensor, share: float = 1.0) -> Tensor:
        """The weight of each pair, [M * N], from the distances [M * N]; no gradient flows through it.

        Several processes use one plan, computed from the mean of their distances, weighted by the `share` of the rows
        that each process has.
        """
        shape = len(self.student), len(self.teacher)
        found = distances.detach().double()
        # In evaluation mode a process may measure alone, as guards do.
        costs = (_of_all(found, share) if self.training else found).cpu().reshape(shape)
        ours, theirs = self.student.double().cpu().numpy(), self.teacher.double().cpu().numpy()
        if not bool(torch.isfinite(costs).all()):
            # No plan exists; the check of the loss reports the step and the examples.
            return torch.full_like(distances, 1 / distances.numel())
        flow = torch.from_numpy(self.plan(costs.numpy(), ours, theirs))
        paid = flow * costs
        if self.training:
            self.seen.append((paid.sum(1), paid.sum(0)))
        return flow.to(distances).reshape(-1)

    @torch.no_grad()
    def update(self, new_epoch: bool) -> None:
        """Update the weights by the costs of this step's plans; reset them at a new epoch with `each_epoch`."""
        if self.reweighed and self.seen:
            for weights, paid in zip((self.student, self.teacher), zip(*self.seen, strict=True), strict=True):
                weights.copy_(reweigh(weights, torch.stack(paid).mean(0).to(weights)))
        self.seen.clear()
        if new_epoch and self.each_epoch:
            self.student.fill_(1 / len(self.student))
            self.teacher.fill_(1 / len(self.teacher))


def _of_all(costs: Tensor, share: float) -> Tensor:
    """The mean over all processes, each weighted by its share."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return costs
    weighed = torch.cat([costs * share, costs.new_tensor([share])])
    torch.distributed.all_reduce(weighed)
    return weighed[:-1] / weighed[-1]
