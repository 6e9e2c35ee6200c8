"""A calibration set: the few training texts on which importance and layer similarity are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor
from transformers import PreTrainedConfig

from stillery.models.importance import Importance, measure
from stillery.models.load_model import Loaded
from stillery.progress import bar, quiet

__all__ = ["AT_ONCE", "TEXTS", "TOKENS", "Calibration", "Inputs", "needs_importance", "spread"]

TEXTS = 64
"""Maximum number of training texts."""

TOKENS = 128
"""Maximum number of tokens of a text, of a source and of a target."""

AT_ONCE = 8
"""Number of texts per batch."""

Inputs = Mapping[str, Tensor]


def spread(count: int, most: int = TEXTS) -> list[int]:
    """Return at most `most` of `count` rows, evenly spaced: the same ones for every seed.

    >>> spread(10, 4), spread(3, 4)
    ([0, 2, 5, 7], [0, 1, 2])
    """
    chosen = min(count, most)
    return [row * count // chosen for row in range(chosen)]


def needs_importance(init: str, named: bool, narrower: bool) -> bool:
    """Return whether an initialisation needs importance: to choose important layers, or to slice copied weights."""
    return init != "random" and (narrower or (init == "important" and not named))


class Calibration:
    """Training texts to measure models on; read and measured on first use only.

    `batches` makes the inputs of a model with the given configuration.
    """

    def __init__(self, batches: Callable[[PreTrainedConfig], list[Inputs]]) -> None:
        self._batches = batches
        self._measured: dict[str, Importance] = {}

    def batches(self, config: PreTrainedConfig) -> list[Inputs]:
        """Return the texts as inputs of a model with this configuration."""
        with quiet():
            return self._batches(config)

    def of(self, source: Loaded) -> Importance:
        """Return the importance of a model's parts on the texts; measured once for each name a model was loaded by."""
        if source.name not in self._measured:
            batches = self.batches(source.model.config)
            self._measured[source.name] = measure(source.model, _with_bar(batches, source.name))
        return self._measured[source.name]


def _with_bar(batches: list[Inputs], name: str) -> Iterator[Inputs]:
    """Yield the batches with a progress bar."""
    with bar(f"measure what matters in {name}", sum(len(inputs["input_ids"]) for inputs in batches)) as shown:
        for inputs in batches:
            yield inputs
            shown.advance(len(inputs["input_ids"]))
