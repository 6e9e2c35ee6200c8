"""Many layers to many layers by the earth mover's distance: BERT-EMD, EMD-ILD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stillery import declare

__all__ = ["Transport", "reweigh"]


def reweigh(weights: Tensor, costs: Tensor) -> Tensor:
    """BERT-EMD's cost attention: a layer's new weight is its old one divided by what it cost, normalised.

    Layers that are moved cheaply gain weight. A cost of zero is clamped.
    """
    changed = weights / costs.clamp_min(1e-12)
    return changed / changed.sum()


@declare.flow("transport", "the flow of least cost between the layers' weights")
class Transport(nn.Module):
    """The layers' weights, and the flow between them on given distances.

    `plan` finds the flow. The weights are state: they change once per optimiser step, by `update`, and are saved with a
    checkpoint. `reweighed` turns the change off, `each_epoch` starts anew every epoch (the released CR-ILD code), and
    flows that are `shared` take the mean of their weights after each step (the released BERT-EMD code).
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
        """The flow of each pair, [M * N], found on the distances [M * N]; no gradient flows through it.

        Several processes find one flow together, on the distances of all: the mean of theirs, weighed by the `share` of
        rows that each is about.
        """
        shape = len(self.student), len(self.teacher)
        found = distances.detach().double()
        # In evaluation mode a process may measure alone, as guards do.
        costs = (_of_all(found, share) if self.training else found).cpu().reshape(shape)
        ours, theirs = self.student.double().cpu().numpy(), self.teacher.double().cpu().numpy()
        if not bool(torch.isfinite(costs).all()):
            # Nothing can be moved cheaply; the loss will say at which step and on which examples.
            return torch.full_like(distances, 1 / distances.numel())
        flow = torch.from_numpy(self.plan(costs.numpy(), ours, theirs))
        paid = flow * costs
        if self.training:
            self.seen.append((paid.sum(1), paid.sum(0)))
        return flow.to(distances).reshape(-1)

    @torch.no_grad()
    def update(self, new_epoch: bool) -> None:
        """Give cheap layers more weight, by what the flows of this step paid; forget it at a new epoch if asked to."""
        if self.reweighed and self.seen:
            for weights, paid in zip((self.student, self.teacher), zip(*self.seen, strict=True), strict=True):
                weights.copy_(reweigh(weights, torch.stack(paid).mean(0).to(weights)))
        self.seen.clear()
        if new_epoch and self.each_epoch:
            self.student.fill_(1 / len(self.student))
            self.teacher.fill_(1 / len(self.teacher))


def _of_all(costs: Tensor, share: float) -> Tensor:
    """The mean over all processes, each weighed by its share."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return costs
    weighed = torch.cat([costs * share, costs.new_tensor([share])])
    torch.distributed.all_reduce(weighed)
    return weighed[:-1] / weighed[-1]
