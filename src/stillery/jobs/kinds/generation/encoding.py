"""Encoding of examples for text generation models, and their decoding settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from stillery.data.schema.examples import Examples
from stillery.data.tokens.batches import in_order
from stillery.data.tokens.collate import collate_generation
from stillery.evaluation.generate import Decoding
from stillery.jobs.calibration import AT_ONCE, TOKENS, Calibration, Inputs, spread
from stillery.jobs.config.settings import InputSettings
from stillery.jobs.kinds.generation import reading
from stillery.jobs.kinds.generation.reading import Reading
from stillery.jobs.kinds.generation.scores import decoding_of
from stillery.models.family import kind_of
from stillery.models.load_model import Loaded
from stillery.train.trainable import TextData

__all__ = ["Encoding", "calibration", "encoding", "written_out"]


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Tokenisation and decoding settings of text generation.

    With `drop_start` the decoder's start position is left out of the rows of its layers.
    """

    reading: Reading
    decoding: Decoding
    drop_start: bool = False
    notes: tuple[str, ...] = ()

    @property
    def max_length(self) -> int:
        """The maximum source length in tokens."""
        return self.reading.max_source

    def settings(self) -> dict[str, Any]:
        """Return the tokenisation settings by name."""
        return self.reading.settings()

    def data(self, examples: Examples, tokenizer: PreTrainedTokenizerBase, split: str) -> TextData:
        """Return the tokenised examples."""
        tokens = self.reading.tokens(examples, tokenizer, split)
        return TextData(tokens=tokens, pad_id=int(tokenizer.pad_token_id), drop_start=self.drop_start)


def encoding(
    inputs: InputSettings, configs: Sequence[PreTrainedConfig], tokenizer: PreTrainedTokenizerBase
) -> Encoding:
    """Build the encoding from the settings, within the position limits of all of the models."""
    found = Reading.of(inputs.data, inputs.generation, configs)
    found.check(tokenizer)
    decoding = decoding_of(inputs.search, found, configs)
    return Encoding(reading=found, decoding=decoding, drop_start=inputs.drop_start)


def written_out(run: Any, encoding: Encoding) -> Any:
    """Return the run with its resolved prompt or prefix."""
    return dataclasses.replace(run, generation=reading.written_out(run.generation, encoding.reading))


def calibration(train: Examples, teacher: Loaded, inputs: InputSettings) -> Calibration:
    """Return a calibration set: a few sources and targets of the training split, tokenised for the teacher."""

    def batches(config: PreTrainedConfig) -> list[Inputs]:
        found = Reading.of(inputs.data, inputs.generation, [config])
        tokens = found.tokens(train.take(spread(len(train))), teacher.tokenizer, "train")
        pad, rows = int(teacher.tokenizer.pad_token_id), in_order(tokens.lengths, AT_ONCE)
        collated = [collate_generation(tokens, index, pad, pad_to=1).inputs for index in rows]
        # A decoder has source and target in one sequence.
        most = 2 * TOKENS if kind_of(config) == "decoder" else TOKENS
        return [{name: tensor[:, :most] for name, tensor in some.items()} for some in collated]

    return Calibration(batches)
