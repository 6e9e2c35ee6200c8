"""Loss on the plane through three models: CR-ILD, Figure 10. f(a, b) = L(t0 + a (t1 - t0) + b (t2 - t0))."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from stillery.errors import UserError
from stillery.evaluation.inference_mode import evaluating
from stillery.progress import bar

__all__ = ["Plane", "Surface", "loss_surface"]

Array = NDArray[np.float64]
Weights = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Surface:
    """Losses on a grid, [b, a], at the places `a` towards the first model and `b` towards the second.

    `corners` are the losses of the start and of the two models, `between` those on the straight line from the first to
    the second, at equal distances, both ends included.
    """

    a: Array
    b: Array
    losses: Array
    corners: tuple[float, float, float]
    between: Array

    @property
    def barrier(self) -> float:
        """How much higher the loss is on the line between both models than at the worse of them; 0 if it is not."""
        return max(0.0, float(self.between.max() - max(self.between[0], self.between[-1])))


class Plane:
    """The plane through the weights of three models of one shape; only numbers that are not integers are moved."""

    def __init__(self, start: Weights, first: Weights, second: Weights) -> None:
        """Span a plane from the start to two models."""
        for other in (first, second):
            if start.keys() != other.keys() or any(start[name].shape != other[name].shape for name in start):
                raise UserError(
                    "loss-surface: the models are of different shapes, so no plane goes through their weights; give "
                    "students of the same depth, width and head"
                )
        self.start = {name: tensor for name, tensor in start.items() if tensor.is_floating_point()}
        self.towards = [{name: other[name] - self.start[name] for name in self.start} for other in (first, second)]
        self._products = np.array([[_dot(one, two) for two in self.towards] for one in self.towards])
        if np.linalg.matrix_rank(self._products, tol=1e-12 * max(self._products.max(), 1e-300)) < 2:
            raise UserError("loss-surface: the three models lie on one line, so they span no plane; give others")

    def at(self, a: float, b: float) -> dict[str, Tensor]:
        """Return the weights at a point."""
        one, two = self.towards
        return {name: tensor + a * one[name] + b * two[name] for name, tensor in self.start.items()}

    def project(self, weights: Weights) -> tuple[float, float, float]:
        """Return the nearest point of the plane, and which share of the way from the start leads out of it."""
        way = {name: weights[name] - tensor for name, tensor in self.start.items()}
        a, b = np.linalg.solve(self._products, [_dot(way, one) for one in self.towards])
        whole, inside = _dot(way, way), float(np.array([a, b]) @ self._products @ np.array([a, b]))
        return float(a), float(b), float(np.sqrt(max(whole - inside, 0.0) / whole)) if whole else 0.0


def loss_surface(
    model: PreTrainedModel,
    plane: Plane,
    loss: Callable[[PreTrainedModel], float],
    *,
    points: int = 11,
    margin: float = 0.25,
    between: int = 7,
) -> Surface:
    """Return the loss on a grid around the three models; the model's own weights are restored."""
    axis = np.linspace(-margin, 1 + margin, points)
    line = np.linspace(0, 1, between)
    own = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    with evaluating(model), torch.no_grad(), bar("loss surface", points**2 + between + 1) as shown:

        def at(a: float, b: float) -> float:
            model.load_state_dict(plane.at(a, b), strict=False)
            shown.advance()
            return loss(model)

        try:
            start = at(0.0, 0.0)
            straight = np.array([at(1 - one, one) for one in line])
            losses = np.array([[at(a, b) for a in axis] for b in axis])
        finally:
            model.load_state_dict(own)
    corners = (start, float(straight[0]), float(straight[-1]))
    return Surface(a=axis, b=axis, losses=losses, corners=corners, between=straight)


def _dot(one: Weights, two: Weights) -> float:
    return float(sum((one[name].double() * two[name].double()).sum() for name in one))
