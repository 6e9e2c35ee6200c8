"""What the losses of a step were, and the end of a run whose loss is not a number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from stillery.errors import Stopped
from stillery.train.objective import Losses

__all__ = ["Said", "note", "spoken", "stop_if_not_finite"]


def spoken(losses: Losses) -> Tensor:
    """The total and every term, in their order, as one tensor."""
    return torch.stack([losses.total.detach(), *(value.detach() for value in losses.terms.values())])


class Said:
    """What the losses of one optimiser step were, kept on the device until somebody reads it."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.names: list[str] = []
        self.ids: list[Sequence[str]] = []
        self.values: list[Tensor] = []
        self.norm: Tensor | None = None
        self.gradients: dict[str, float] = {}

    def add(self, names: Sequence[str], values: Tensor, ids: Sequence[str]) -> None:
        """Add the total and the terms of one micro-batch (`spoken`), and the examples it has."""
        self.names = list(names)
        self.ids.append(ids)
        self.values.append(values)

    def tensors(self) -> list[Tensor]:
        """All that is kept on the device, as vectors."""
        return self.values + ([] if self.norm is None else [self.norm.reshape(1)])

    def take(self, found: Iterator[Tensor]) -> None:
        """Keep these in place of `tensors`."""
        self.values = [next(found) for _ in self.values]
        self.norm = None if self.norm is None else next(found)

    def add_gradients(self, losses: Losses, trained: Sequence[nn.Parameter]) -> None:
        """Add the norm of each term's own gradient; over micro-batches they are added up."""
        for name, term in losses.terms.items():
            found = torch.autograd.grad(term, trained, retain_graph=True, allow_unused=True)
            norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in found if gradient is not None))
            self.gradients[name] = self.gradients.get(name, 0.0) + norm

    def numbers(self, accelerator: Accelerator | None = None) -> dict[str, object]:
        """The loss, its terms and their gradients, read back; of several processes all call this, and it is theirs.

        The norm of a term's own gradient is of this process's examples alone.
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


def note(numbers: dict[str, object]) -> str:
    """The loss and its terms in a few words."""
    terms = numbers["terms"]
    assert isinstance(terms, dict)
    return " ".join([f"loss {numbers['loss']:.4f}"] + [f"{name} {value:.4f}" for name, value in terms.items()])


def stop_if_not_finite(steps: Sequence[Said]) -> None:
    """Stop the run at the first step whose loss was not a finite number."""
    if not steps:
        return
    # One reading for all of them: each would make a GPU wait.
    read = iter(torch.cat([values for said in steps for values in said.values]).tolist())
    for said in steps:
        for ids in said.ids:
            values = [next(read) for _ in range(len(said.names) + 1)]
            bad = [name for name, value in zip(said.names, values[1:], strict=True) if not math.isfinite(value)]
            if bad:
                raise Stopped(
                    f"step {said.step}: loss term {', '.join(bad)} is not finite on examples {', '.join(ids[:40])}"
                    f"{' ...' if len(ids) > 40 else ''}; try a lower --lr or --precision fp32"
                )
