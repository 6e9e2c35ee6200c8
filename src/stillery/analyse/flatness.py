"""Loss against the radius of Gaussian noise added to the embedding output: CR-ILD, Figures 4 and 8."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from stillery.analyse.loss_of import mean_loss
from stillery.data.tokens.batches import Batch
from stillery.evaluation.inference_mode import evaluating
from stillery.losses import Kind
from stillery.progress import bar

__all__ = ["Flatness", "flatness"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Flatness:
    """The loss of a model at each radius of the noise, [radii, draws], and the size of its embedding output.

    A radius is relative: the standard deviation of the noise is the radius times `size`, the root mean square of the
    embedding output over all real tokens.
    """

    radii: NDArray[np.float64]
    losses: NDArray[np.float64]
    size: float


def flatness(
    model: PreTrainedModel,
    batches: Callable[[], Iterable[Batch]],
    kind: Kind,
    radii: Sequence[float],
    *,
    draws: int = 5,
    seed: int = 0,
    description: str = "flatness",
) -> Flatness:
    """Return the label loss under noise; `batches` gives the examples anew for every draw.

    The noise of an example is drawn for it alone, so that it depends neither on padding nor on the batches.
    """
    with evaluating(model), bar(description, len(radii) * draws) as shown:
        size = _Size()
        plain = mean_loss(model, batches(), kind, size.of)
        losses = np.full((len(radii), draws), plain)
        for place, radius in enumerate(radii):
            for draw in range(draws):
                if radius:
                    noise = partial(_noise, scale=radius * size.value, seed=seed, draw=draw)
                    losses[place, draw] = mean_loss(model, batches(), kind, noise)
                shown.advance()
    return Flatness(radii=np.asarray(radii, dtype=np.float64), losses=losses, size=size.value)


class _Size:
    """The root mean square of embedding outputs, over all real tokens seen."""

    def __init__(self) -> None:
        self.squares, self.values = 0.0, 0

    @property
    def value(self) -> float:
        """The root mean square."""
        return float((self.squares / max(self.values, 1)) ** 0.5)

    def of(self, batch: Batch) -> Callable[[Tensor], Tensor]:
        """Return a function that looks at the embedding output of a batch and leaves it as it is."""
        real = batch.inputs["attention_mask"].bool()

        def look(states: Tensor) -> Tensor:
            self.squares += float((states[real].double() ** 2).sum())
            self.values += int(real.sum()) * states.shape[-1]
            return states

        return look


def _noise(batch: Batch, *, scale: float, seed: int, draw: int) -> Callable[[Tensor], Tensor]:
    """Return a function that adds noise to the real tokens of a batch."""
    real = batch.inputs["attention_mask"].bool()

    def add(states: Tensor) -> Tensor:
        shapes = [(int(count), states.shape[-1]) for count in real.sum(1)]
        drawn = [
            np.random.default_rng([seed, draw, int(example)]).standard_normal(shape, dtype=np.float32)
            for example, shape in zip(batch.index, shapes, strict=True)
        ]
        noisy = states.clone()
        noisy[real] += scale * torch.from_numpy(np.concatenate(drawn)).to(states)
        return noisy

    return add
