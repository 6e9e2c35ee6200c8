"""The losses of a step, and the check that they are finite."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from stillery.errors import Stopped
from stillery.lines import listed
from stillery.train.objective import Losses

__all__ = ["StepLosses", "finite", "note", "stacked"]


def stacked(losses: Losses) -> Tensor:
    """The total and every term, in their order, as one tensor."""
    return torch.stack([losses.total.detach(), *(value.detach() for value in losses.terms.values())])


class StepLosses:
    """The losses of one optimiser step, kept on the device until they are read."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.names: list[str] = []
        self.ids: list[Sequence[str]] = []
        self.values: list[Tensor] = []
        self.norm: Tensor | None = None
        self.gradients: dict[str, float] = {}

    def add(self, names: Sequence[str], values: Tensor, ids: Sequence[str]) -> None:
        """Add the total and the terms of one micro-batch (`stacked`), and the ids of its examples."""
        self.names = list(names)
        self.ids.append(ids)
        self.values.append(values)

    def tensors(self) -> list[Tensor]:
        """All tensors on the device, as vectors."""
        return self.values + ([] if self.norm is None else [self.norm.reshape(1)])

    def replace_tensors(self, found: Iterator[Tensor]) -> None:
        """Replace `tensors` by these, in order."""
        self.values = [next(found) for _ in self.values]
        self.norm = None if self.norm is None else next(found)

    def add_gradients(self, losses: Losses, trained: Sequence[nn.Parameter]) -> None:
        """Add the gradient norm of each term, summed over micro-batches."""
        for name, term in losses.terms.items():
            found = torch.autograd.grad(term, trained, retain_graph=True, allow_unused=True)
            norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in found if gradient is not None))
            self.gradients[name] = self.gradients.get(name, 0.0) + norm

    def numbers(self, accelerator: Accelerator | None = None) -> dict[str, object]:
        """Read the loss, its terms and gradient norms; summed over processes, which must all call this.

        The gradient norm of a term covers only this process's examples.
        """
        values = torch.stack(self.values).sum(0)
        if accelerator is not None and accelerator.num_processes > 1:
            values = accelerator.reduce(values)
        total, *terms = values.tolist()
        numbers: dict[str, object] = {"loss": total, "terms": dict(zip(self.names, terms, strict=True))}
        if self.gradients:
            numbers["term_gradient_norms"] = self.gradients
        if self.norm is not None:
            numbers["gradient_norm"] = float(self.norm)
        return numbers


def note(numbers: Mapping[str, object]) -> list[str]:
    """Format the loss and its terms for the end of a progress bar."""
    terms = numbers["terms"]
    assert isinstance(terms, dict)
    return [f"{name} {value:.3g}" for name, value in {"loss": numbers["loss"], **terms}.items()]


def finite(steps: Sequence[StepLosses]) -> list[dict[str, float]]:
    """Return the loss and terms of each step in this process; raise Stopped at the first that is not finite."""
    if not steps:
        return []
    # One copy for all of them, since each copy synchronises with the GPU.
    read = iter(torch.cat([values for one in steps for values in one.values]).tolist())
    found = []
    for one in steps:
        sums = dict.fromkeys(["loss", *one.names], 0.0)
        for ids in one.ids:
            values = [next(read) for _ in range(len(one.names) + 1)]
            bad = [name for name, value in zip(one.names, values[1:], strict=True) if not math.isfinite(value)]
            if bad:
                raise Stopped(
                    f"lower the learning rate (--lr), or try --precision fp32: in step {one.step} the loss term "
                    f"{', '.join(bad)} is not finite, on examples {listed(ids)}"
                )
            for name, value in zip(sums, values, strict=True):
                sums[name] += value
        found.append(sums)
    return found
