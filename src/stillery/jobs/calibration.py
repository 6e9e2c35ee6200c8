"""The few training texts on which it is measured what of a model matters most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor
from transformers import PreTrainedConfig

from stillery.data.schema.examples import Examples
from stillery.data.tokens.batches import in_order
from stillery.data.tokens.collate import collate, collate_generation
from stillery.data.tokens.encode import tokenise
from stillery.jobs.config.settings import DataSettings, GenerationSettings
from stillery.jobs.text_inputs import Reading
from stillery.models.family import kind_of, longest_input
from stillery.models.importance import Importance, measure
from stillery.models.load import Loaded
from stillery.progress import bar, quiet

__all__ = ["TEXTS", "TOKENS", "Calibration", "needs_importance", "spread"]

TEXTS = 64
"""As many training texts are looked at, or all of fewer."""

TOKENS = 128
"""As many tokens of a text, of a source and of a target, at most."""

_AT_ONCE = 8

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
    """Training texts to measure models on; nothing is read or measured before it is asked for, and then once."""

    def __init__(self, batches: Callable[[PreTrainedConfig], list[Inputs]]) -> None:
        self._batches = batches
        self._measured: dict[str, Importance] = {}

    @classmethod
    def for_classifiers(cls, train: Examples, teacher: Loaded, max_length: int) -> Calibration:
        """Texts of a training part, as tokens of the teacher's."""

        def batches(config: PreTrainedConfig) -> list[Inputs]:
            limit = min(max_length, TOKENS, longest_input(config))
            examples = train.take(spread(len(train)))
            tokens, pad = tokenise(examples, teacher.tokenizer, limit), int(teacher.tokenizer.pad_token_id)
            rows = in_order(tokens.lengths, _AT_ONCE)
            return [collate(examples, tokens, index, pad, pad_to=1).inputs for index in rows]

        return cls(batches)

    @classmethod
    def for_writers(
        cls, train: Examples, teacher: Loaded, data: DataSettings, writing: GenerationSettings
    ) -> Calibration:
        """Sources and targets of a training part, as tokens of the teacher's."""

        def batches(config: PreTrainedConfig) -> list[Inputs]:
            reading = Reading.of(data, writing, [config])
            tokens = reading.tokens(train.take(spread(len(train))), teacher.tokenizer, "train")
            pad, rows = int(teacher.tokenizer.pad_token_id), in_order(tokens.lengths, _AT_ONCE)
            found = [collate_generation(tokens, index, pad, pad_to=1).inputs for index in rows]
            # A decoder has source and target in one row.
            most = 2 * TOKENS if kind_of(config) == "decoder" else TOKENS
            return [{name: tensor[:, :most] for name, tensor in inputs.items()} for inputs in found]

        return cls(batches)

    def batches(self, config: PreTrainedConfig) -> list[Inputs]:
        """The texts as a model of this configuration reads them."""
        with quiet():
            return self._batches(config)

    def of(self, source: Loaded) -> Importance:
        """What of a model matters most on the texts; it is asked once, under the name it was loaded by."""
        if source.name not in self._measured:
            batches = self.batches(source.model.config)
            self._measured[source.name] = measure(source.model, _shown(batches, source.name))
        return self._measured[source.name]


def _shown(batches: list[Inputs], name: str) -> Iterator[Inputs]:
    """The batches, with a bar that moves on with them."""
    with bar(f"measure what matters in {name}", sum(len(inputs["input_ids"]) for inputs in batches)) as shown:
        for inputs in batches:
            yield inputs
            shown.advance(len(inputs["input_ids"]))
