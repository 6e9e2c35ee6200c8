"""The few training texts on which it is measured what of a model matters most, and which layers are alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor
from transformers import PreTrainedConfig

from stillery.models.importance import Importance, measure
from stillery.models.load_model import Loaded
from stillery.progress import bar, quiet

__all__ = ["AT_ONCE", "TEXTS", "TOKENS", "Calibration", "Inputs", "needs_importance", "spread"]

TEXTS = 64
"""As many training texts are used, or all of fewer."""

TOKENS = 128
"""As many tokens of a text, of a source and of a target, at most."""

AT_ONCE = 8
"""Texts of a batch."""

Inputs = Mapping[str, Tensor]


def spread(count: int, most: int = TEXTS) -> list[int]:
    """At most `most` of `count` rows, evenly spread: the same ones for every seed.

    >>> spread(10, 4), spread(3, 4)
    ([0, 2, 5, 7], [0, 1, 2])
    """
    chosen = min(count, most)
    return [row * count // chosen for row in range(chosen)]


def needs_importance(init: str, named: bool, narrower: bool) -> bool:
    """Whether a start has to be measured: layers that nobody has named, or slices of what is copied."""
    return init != "random" and (narrower or (init == "important" and not named))


class Calibration:
    """Training texts to measure models on; nothing is read or measured before it is needed, and then once.

    `batches` makes the inputs of a model with the given configuration.
    """

    def __init__(self, batches: Callable[[PreTrainedConfig], list[Inputs]]) -> None:
        self._batches = batches
        self._measured: dict[str, Importance] = {}

    def batches(self, config: PreTrainedConfig) -> list[Inputs]:
        """The texts as a model of this configuration reads them."""
        with quiet():
            return self._batches(config)

    def of(self, source: Loaded) -> Importance:
        """What of a model matters most on the texts; measured once for each name a model was loaded by."""
        if source.name not in self._measured:
            batches = self.batches(source.model.config)
            self._measured[source.name] = measure(source.model, _with_bar(batches, source.name))
        return self._measured[source.name]


def _with_bar(batches: list[Inputs], name: str) -> Iterator[Inputs]:
    """The batches, with a bar that moves on with them."""
    with bar(f"measure what matters in {name}", sum(len(inputs["input_ids"]) for inputs in batches)) as shown:
        for inputs in batches:
            yield inputs
            shown.advance(len(inputs["input_ids"]))
