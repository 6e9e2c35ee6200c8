"""What the losses of a step were, and the end of a run whose loss is not a number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stillery.data.batches import Batch
from stillery.faults import Stopped
from stillery.train.objective import Losses

__all__ = ["Said", "stop_if_not_finite"]


class Said:
    """What the losses of one optimiser step were, kept on the device until somebody reads it."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.ids: list[Sequence[str]] = []
        self.terms: list[dict[str, Tensor]] = []
        self.totals: list[Tensor] = []
        self.gradients: dict[str, float] = {}

    def add(self, losses: Losses, batch: Batch) -> None:
        """Add the losses of one micro-batch."""
        self.ids.append(batch.ids)
        self.terms.append({name: value.detach() for name, value in losses.terms.items()})
        self.totals.append(losses.total.detach())

    def add_gradients(self, losses: Losses, trained: Sequence[nn.Parameter]) -> None:
        """Add the norm of each term's own gradient; over micro-batches they are added up."""
        for name, term in losses.terms.items():
            found = torch.autograd.grad(term, trained, retain_graph=True, allow_unused=True)
            norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in found if gradient is not None))
            self.gradients[name] = self.gradients.get(name, 0.0) + norm

    def numbers(self) -> dict[str, object]:
        """The loss, its terms and their gradients, read back."""
        terms = {name: sum(float(part[name]) for part in self.terms) for name in self.terms[0]}
        numbers: dict[str, object] = {"loss": sum(float(total) for total in self.totals), "terms": terms}
        if self.gradients:
            numbers["term_gradient_norms"] = self.gradients
        return numbers

    def note(self) -> str:
        """The loss and its terms in a few words."""
        numbers = self.numbers()
        terms = numbers["terms"]
        assert isinstance(terms, dict)
        return " ".join([f"loss {numbers['loss']:.4f}"] + [f"{name} {value:.4f}" for name, value in terms.items()])


def stop_if_not_finite(pending: list[Said]) -> None:
    """Stop the run at the first step whose loss was not a finite number; forget the steps looked at."""
    for said in pending:
        for ids, terms in zip(said.ids, said.terms, strict=True):
            bad = [name for name, value in terms.items() if not math.isfinite(float(value))]
            if bad:
                raise Stopped(
                    f"step {said.step}: loss term {', '.join(bad)} is not finite on examples {', '.join(ids[:40])}"
                    f"{' ...' if len(ids) > 40 else ''}; try a lower --lr or --precision fp32"
                )
    pending.clear()
