"""Tokenisation of sentences given as words, with the first subword of each word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from transformers import BatchEncoding, PreTrainedTokenizerBase

from stillery.data.tokens.encode import Tokens, tokenise_with
from stillery.errors import UserError
from stillery.ignored import IGNORED

__all__ = ["UNKNOWN", "WordTokens", "first_piece_labels", "refuse_slow", "tokenise_words"]

UNKNOWN = -1
"""The label of a first subword whose tag is unknown, where a model can still be compared with its teacher."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class WordTokens:
    """Token ids of sentences, and the position of each word's first subword.

    Attributes:
        tokens: the token ids of each sentence.
        offsets: sentence i has the words `offsets[i]:offsets[i + 1]`.
        first: the index in `tokens.flat` of each word's first subword; -1 if it was truncated or has no subword.
        cut: the number of truncated words.
        unread: the number of words without a subword, although they are within the length.
    """

    tokens: Tokens
    offsets: Ints
    first: Ints
    cut: int
    unread: int

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> Ints:
        """The number of tokens of each sentence."""
        return self.tokens.lengths

    @property
    def words(self) -> int:
        """The number of words of all sentences."""
        return len(self.first)

    def notes(self, split: str) -> list[str]:
        """Messages about words of a split that cannot be learnt or predicted."""
        said = []
        if self.cut:
            many = "" if self.tokens.truncated == 1 else "s"
            said.append(
                f"{split}: {self.cut:,} of {self.words:,} words are beyond the {self.tokens.max_length} tokens of "
                f"--max-length, in {self.tokens.truncated:,} sentence{many}; they are not learnt, and {_NO_TAG}"
            )
        if self.unread:
            said.append(f"{split}: the tokenizer has no token for {self.unread:,} words, which {_NO_TAG}")
        return said


_NO_TAG = "are scored as words that were given no tag"


def refuse_slow(tokenizer: PreTrainedTokenizerBase, where: str) -> None:
    """Raise UserError for a slow tokenizer, in Python: it does not map tokens to words."""
    if not tokenizer.is_fast:
        raise UserError(
            f"{where}: its tokenizer ({type(tokenizer).__name__}) does not say which word a token is a piece of; use a "
            "model with a fast tokenizer (tokenizer.json)"
        )


def tokenise_words(
    sentences: pa.Array, tokenizer: PreTrainedTokenizerBase, max_length: int, description: str = "tokenise"
) -> WordTokens:
    """Tokenise lists of words, truncated to `max_length` or to the tokenizer's maximum if that is less.

    A word for which a tokenizer returns no token, such as a control character, is replaced by its unknown token.
    """
    refuse_slow(tokenizer, type(tokenizer).__name__)
    limit = min(max_length, tokenizer.model_max_length)
    special = tokenizer.num_special_tokens_to_add(pair=False)
    if limit <= special:
        raise UserError(
            f"max length {limit} leaves no room for words beside {special} special tokens; raise --max-length"
        )
    sizes = pc.fill_null(pc.list_value_length(sentences), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    reading = _Reading(tokenizer)
    tokens = tokenise_with(reading, tokenizer, sentences, None, limit, description)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
    first = np.full(int(offsets[-1]), -1, dtype=np.int64)
    for row, (words, places) in enumerate(reading.begins):
        first[offsets[row] + words] = tokens.offsets[row] + places
    missing = int((first < 0).sum())
    return WordTokens(tokens=tokens, offsets=offsets, first=first, cut=missing - reading.unread, unread=reading.unread)


class _Reading:
    """An encoder of sentences that records the words of each and the positions of their first tokens."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.begins: list[tuple[Ints, Ints]] = []
        self.unread = 0

    def __call__(self, sentences: Any, _: list[str] | None, limit: int | None) -> BatchEncoding:
        """Encode a block of sentences; with a fast tokenizer, `tokenise_with` calls this once per block."""
        encoded = self._encoded(sentences, limit)
        silent = {row: words for row, words in enumerate(map(_silent, encoded.encodings, sentences)) if words}
        unknown = self.tokenizer.unk_token
        if silent and unknown is not None:
            given = [
                [unknown if place in silent[row] else word for place, word in enumerate(words)]
                if row in silent
                else words
                for row, words in enumerate(sentences)
            ]
            encoded = self._encoded(given, limit)
            silent = {row: words for row, words in enumerate(map(_silent, encoded.encodings, sentences)) if words}
        self.unread += sum(map(len, silent.values()))
        self.begins += [_begins(one, self.tokenizer.truncation_side) for one in encoded.encodings]
        found: BatchEncoding = encoded
        return found

    def _encoded(self, sentences: Any, limit: int | None) -> Any:
        length = {"truncation": limit is not None, "max_length": limit}
        return self.tokenizer(sentences, is_split_into_words=True, **length, return_attention_mask=False, verbose=False)


def _silent(encoding: Any, words: list[str]) -> set[int]:
    """The words without any subword, neither within the length nor beyond it."""
    seen = {word for one in (encoding, *encoding.overflowing) for word in one.word_ids}
    return set() if len(seen - {None}) == len(words) else set(range(len(words))) - seen


def _begins(encoding: Any, side: str) -> tuple[Ints, Ints]:
    """The words that begin within the length, and the position of each one's first token."""
    words = np.array([-1 if word is None else word for word in encoding.word_ids], dtype=np.int64)
    new = (words >= 0) & (words != np.append(-1, words[:-1]))
    if side == "left" and encoding.overflowing:
        # A word split by truncation begins in the part that was removed.
        new &= ~np.isin(words, [word for one in encoding.overflowing for word in one.word_ids if word is not None])
    places = np.flatnonzero(new)
    return words[places], places


def first_piece_labels(words: WordTokens, tags: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """The label of each token: the tag of a word at its first subword (`UNKNOWN` without tags), else `IGNORED`.

    `tags` are those of all words, sentence after sentence; the labels are aligned with `tokens.flat`.
    """
    labels = np.full(len(words.tokens.flat), IGNORED, dtype=np.int64)
    there = words.first >= 0
    labels[words.first[there]] = UNKNOWN if tags is None else tags[there]
    return labels
