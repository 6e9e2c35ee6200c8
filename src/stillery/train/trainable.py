"""Training data: examples that are collated into batches, with row counts that are known in advance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stillery.data.schema.examples import Examples
from stillery.data.tokens.batches import Batch
from stillery.data.tokens.collate import collate, collate_generation
from stillery.data.tokens.encode import Tokens
from stillery.data.tokens.encode_generation import GenerationTokens
from stillery.data.tokens.encode_words import WordTokens
from stillery.data.tokens.word_batches import collate_words
from stillery.ignored import IGNORED
from stillery.recipe import MIXED_ROWS, Rows

__all__ = [
    "Drawn",
    "EncoderData",
    "TextData",
    "Trainable",
    "TrainingData",
    "WordData",
    "as_teacher_reads",
    "counted",
    "rows_of_lengths",
    "shown_rows",
]

Drawn = tuple[float, list[int]]
"""MixUp of a batch: the mixing weight, and the partner of each example."""

Indices = NDArray[np.int64]
Lengths = NDArray[np.int64]


class Trainable(Protocol):
    """Training examples, addressed by index."""

    @property
    def lengths(self) -> Lengths:
        """The length of each example, for batches of similar lengths."""

    def __len__(self) -> int:
        """The number of examples."""

    def rows(self, index: Indices, drawn: Drawn | None = None) -> dict[Rows, int]:
        """The number of rows of each kind of these examples, plain and mixed."""

    def batch(self, index: Indices, pad_to: int = 8) -> Batch:
        """These examples as tensors, padded to their longest rounded up to a multiple of `pad_to`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingData:
    """Tokenised training examples of a classifier.

    `teacher` are the same examples, in the same order, tokenised for a teacher with another tokenizer.
    """

    examples: Examples
    tokens: Tokens
    pad_id: int
    teacher: TrainingData | None = None

    @property
    def ids(self) -> Sequence[str]:
        """The ids of the examples."""
        return self.examples.ids

    @property
    def lengths(self) -> Lengths:
        """Tokens of each example."""
        return self.tokens.lengths

    def __len__(self) -> int:
        return len(self.examples)

    def rows(self, index: Indices, drawn: Drawn | None = None) -> dict[Rows, int]:
        """The numbers of examples, tokens and pairs of tokens."""
        found: dict[Rows, int] = {"examples": len(index)}
        return found | rows_of_lengths(self.tokens.lengths[index], None, drawn)

    def batch(self, index: Indices, pad_to: int = 8) -> Batch:
        """These examples as tensors, with the teacher's inputs if its tokenizer differs."""
        batch = collate(self.examples, self.tokens, index, self.pad_id, pad_to)
        return batch if self.teacher is None else replace(batch, teacher=self.teacher.batch(index, pad_to).inputs)


@dataclass(frozen=True, kw_only=True, eq=False)
class TextData:
    """Tokenised sources and targets of a model that generates text.

    With `drop_start` the decoder's first position, whose input is no target token, does not count as a row.
    """

    tokens: GenerationTokens
    pad_id: int
    drop_start: bool = False

    @property
    def lengths(self) -> Lengths:
        """Tokens of each example, in all stacks together."""
        return self.tokens.lengths

    def __len__(self) -> int:
        return len(self.tokens)

    def rows(self, index: Indices, drawn: Drawn | None = None) -> dict[Rows, int]:
        """The numbers of examples, scored targets, and tokens and pairs of tokens of each stack."""
        tokens = self.tokens
        encoder = None if tokens.encoder_lengths is None else tokens.encoder_lengths[index]
        found: dict[Rows, int] = {"examples": len(index), "targets": int(tokens.target_lengths[index].sum())}
        dropped = self.drop_start and tokens.target is not None
        return found | rows_of_lengths(encoder, shown_rows(tokens.decoder_lengths[index], dropped), drawn)

    def batch(self, index: Indices, pad_to: int = 8) -> Batch:
        """These examples as tensors, the labels among the inputs."""
        return collate_generation(self.tokens, index, self.pad_id, pad_to)


@dataclass(frozen=True, kw_only=True, eq=False)
class WordData:
    """Tokenised sentences for token classification.

    `labels` are those of every token (`first_piece_labels`); positions with `IGNORED` are not scored.
    """

    ids: Sequence[str]
    words: WordTokens
    labels: NDArray[np.int64]
    pad_id: int

    @property
    def tokens(self) -> Tokens:
        """The token ids of the sentences."""
        return self.words.tokens

    @property
    def lengths(self) -> Lengths:
        """Tokens of each sentence."""
        return self.tokens.lengths

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def target_lengths(self) -> Lengths:
        """The number of scored positions of each sentence."""
        before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.labels != IGNORED)])
        return np.diff(before[self.words.tokens.offsets])

    def rows(self, index: Indices, drawn: Drawn | None = None) -> dict[Rows, int]:
        """The numbers of sentences, scored positions, tokens and pairs of tokens."""
        found: dict[Rows, int] = {"examples": len(index), "targets": int(self.target_lengths[index].sum())}
        return found | rows_of_lengths(self.lengths[index], None, drawn)

    def batch(self, index: Indices, pad_to: int = 8) -> Batch:
        """These sentences as tensors, the labels among the inputs."""
        return collate_words(self.words, self.labels, self.ids, index, self.pad_id, pad_to)


EncoderData = TrainingData | WordData
"""Examples of an encoder, on which a teacher's outputs can be cached."""


def as_teacher_reads(data: EncoderData) -> EncoderData:
    """Return the examples as tokenised for the teacher."""
    return data.teacher if isinstance(data, TrainingData) and data.teacher is not None else data


def shown_rows(lengths: Lengths, drop_start: bool) -> Lengths:
    """Return the number of decoder positions that count as rows, for targets of these lengths."""
    return np.maximum(lengths - 1, 0) if drop_start else lengths


def rows_of_lengths(encoder: Lengths | None, decoder: Lengths | None, drawn: Drawn | None) -> dict[Rows, int]:
    """Count tokens and pairs of tokens of examples with these lengths, plain and, where drawn, mixed."""
    rows = counted(encoder, decoder)
    if drawn:
        mixed = counted(_mixed(encoder, *drawn), _mixed(decoder, *drawn))
        rows |= {MIXED_ROWS[kind]: count for kind, count in mixed.items()}
    return rows


def counted(encoder: Lengths | None, decoder: Lengths | None) -> dict[Rows, int]:
    """Count tokens and pairs of tokens of examples with these lengths in each stack."""
    rows: dict[Rows, int] = {}
    if encoder is not None:
        rows |= {"tokens": int(encoder.sum()), "pairs": int((encoder**2).sum())}
    if decoder is not None:
        rows |= {"decoder tokens": int(decoder.sum()), "decoder pairs": int((decoder**2).sum())}
        rows["causal pairs"] = int((decoder * (decoder + 1)).sum()) // 2
    if encoder is not None and decoder is not None:
        rows["cross pairs"] = int((encoder * decoder).sum())
    return rows


def _mixed(lengths: Lengths | None, lam: float, partner: list[int]) -> Lengths | None:
    """Lengths of mixed examples: the larger of both, or that of the one with all the weight."""
    if lengths is None or lam == 1 or not len(lengths):
        return lengths
    return lengths[partner] if lam == 0 else np.maximum(lengths, lengths[partner])
