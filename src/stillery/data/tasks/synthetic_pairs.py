"""Synthetic sentence pairs of a given length from any corpus, as supplementary training texts.

After CR-ILD (section 3.2.1 and appendix B): a sample is two sentences of a corpus drawn at random, kept if its
effective length, the number of tokens without padding, fits. Here every fitting pair is equally likely, as in rejection
sampling, but no draw is rejected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.readers.files import read_batches
from stillery.data.schema.answer_labels import classification
from stillery.data.schema.columns import find
from stillery.data.schema.examples import Examples
from stillery.data.schema.splits import text_keys
from stillery.data.schema.values import text_column
from stillery.data.tasks.sentences import split_sentences
from stillery.data.tokens.encode import tokenise
from stillery.errors import UserError
from stillery.progress import bar

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["Drawn", "Window", "count_tokens", "draw_pairs", "open_corpus", "pair_window", "read_sentences"]

BATCH_ROWS = 1000
FOLDED_AT_ONCE = 200_000
MOST_SENTENCES = 2_000_000
# Enough sentences at first that the pairs hardly repeat any.
COUNTED_AT_ONCE, SENTENCES_PER_PAIR = 20_000, 4
NO_LIMIT = 2**30


@dataclass(frozen=True, kw_only=True)
class Window:
    """The minimum and maximum tokens of a pair, with special tokens, and the number of special tokens."""

    fewest: int
    most: int
    special: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawn:
    """Pairs as row indices of their two sentences, and the effective length of each."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    lengths: NDArray[np.int64]


def open_corpus(path: Path, text: str | None) -> Iterator[pa.Array]:
    """Iterate over the texts of a file in batches, of both columns if it has two; errors in the first one raise now."""
    texts = _texts(path, text)
    return chain([next(texts)], texts)


def read_sentences(corpus: Iterator[pa.Array], *, min_words: int, seed: int) -> pa.Array:
    """Read the distinct sentences of at least `min_words` words, shuffled and limited to two million.

    The choice of sentences and their order only depend on the sentences and the seed, so that the order of the texts
    and duplicates do not matter.
    """
    kept = _Chosen(sentences=pa.array([], pa.large_string()), keys=np.zeros(0, dtype=np.uint64))
    found: list[str] = []
    with bar("read sentences", None) as shown:
        for texts in corpus:
            for row in texts.to_pylist():
                sentences = split_sentences(row) if row is not None else ()
                found += [sentence for sentence in sentences if len(sentence.split()) >= min_words]
            if len(found) > FOLDED_AT_ONCE:
                kept, found = kept.with_more(found, seed), []
            shown.advance(len(texts))
    return kept.with_more(found, seed).sentences


def count_tokens(
    sentences: pa.Array, tokenizer: PreTrainedTokenizerBase, window: Window, size: int
) -> NDArray[np.int64]:
    """Count the tokens of sentences, without special tokens, from the first on until `size` of them have a partner.

    If there are not enough, all sentences are counted. A sentence longer than the tokenizer's maximum gets a length
    that fits into no pair.
    """
    counted = np.zeros(0, dtype=np.int64)
    special = tokenizer.num_special_tokens_to_add(pair=False)
    more = max(COUNTED_AT_ONCE, SENTENCES_PER_PAIR * size)
    while len(counted) < len(sentences):
        texts = sentences.slice(len(counted), more)
        examples = Examples(ids=("",) * len(texts), columns={"text": texts}, source="sentences")
        tokens = tokenise(examples, tokenizer, NO_LIMIT, "count tokens")
        counted = np.concatenate([counted, tokens.lengths - special])
        if np.count_nonzero(_partners(counted, window).counts) >= size:
            break
        more = len(counted)
    return counted


def pair_window(tokenizer: PreTrainedTokenizerBase, length: int | None, tolerance: float) -> Window:
    """The token window of a pair: the given length plus or minus a share of it, or all the tokenizer accepts."""
    special = tokenizer.num_special_tokens_to_add(pair=True)
    longest = min(tokenizer.model_max_length, NO_LIMIT)
    if length is None:
        return Window(fewest=special, most=longest, special=special)
    if length > longest:
        raise UserError(f"--length {length}: the tokenizer takes no more than {longest} tokens; ask for less")
    if length < special + 2:
        raise UserError(f"--length {length}: two sentences and {special} special tokens need more; ask for more")
    # Rounded first, so that 100 +- 10% ends at 110 although 100 * 1.1 is a little more.
    fewest = math.ceil(round(length * (1 - tolerance), 6))
    most = math.floor(round(length * (1 + tolerance), 6))
    return Window(fewest=fewest, most=min(most, longest), special=special)


def draw_pairs(tokens: NDArray[np.int64], window: Window, size: int, seed: int, where: str) -> Drawn:
    """Draw `size` distinct pairs of distinct sentences whose lengths fit; raise UserError if there are too few.

    `tokens` has the token count of each sentence. Every fitting pair is equally likely; two sentences make one pair, in
    either order. A pure function of its arguments.
    """
    partners = _partners(tokens, window)
    order, ordered = partners.order, tokens[partners.order]
    before = np.concatenate([[0], np.cumsum(partners.counts)])
    there = int(before[-1])
    if there < size:
        raise UserError(
            f"{where}: its {len(tokens):,} sentences make {there:,} pairs of {window.fewest} to {window.most} tokens, "
            f"and --size asks for {size:,}; ask for fewer, allow more with --tolerance, or give more text"
        )
    random = np.random.default_rng([seed % 2**64, 0x5E27])
    chosen = random.choice(there, size, replace=False)
    left = np.searchsorted(before, chosen, side="right") - 1
    right = partners.begin[left] + chosen - before[left]
    swapped = random.random(size) < 0.5
    return Drawn(
        first=order[np.where(swapped, right, left)],
        second=order[np.where(swapped, left, right)],
        lengths=ordered[left] + ordered[right] + window.special,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Partners:
    """Sentences sorted by length, and the range of partners of each: `counts` later positions from `begin` on."""

    order: NDArray[np.int64]
    begin: NDArray[np.int64]
    counts: NDArray[np.int64]


def _partners(tokens: NDArray[np.int64], window: Window) -> _Partners:
    order = np.argsort(tokens, kind="stable")
    ordered = tokens[order]
    # Only later positions, so that each pair occurs once.
    begin = np.searchsorted(ordered, window.fewest - window.special - ordered, side="left")
    begin = np.maximum(begin, np.arange(len(order)) + 1)
    end = np.searchsorted(ordered, window.most - window.special - ordered, side="right")
    return _Partners(order=order, begin=begin, counts=np.maximum(end - begin, 0))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Chosen:
    """Distinct sentences in the order of their keys, which are seeded hashes: a shuffle by content."""

    sentences: pa.Array
    keys: NDArray[np.uint64]

    def with_more(self, found: list[str], seed: int) -> _Chosen:
        new = pa.array(found, pa.large_string())
        keys = np.concatenate([self.keys, text_keys([new], seed)])
        # The smallest hashes are a random sample that needs a single pass.
        keys, rows = np.unique(keys, return_index=True)
        chosen = pa.concat_arrays([self.sentences, new]).take(pa.array(rows[:MOST_SENTENCES]))
        return _Chosen(sentences=chosen, keys=keys[:MOST_SENTENCES])


def _texts(path: Path, text: str | None) -> Iterator[pa.Array]:
    schema, columns, before = classification(text=text), None, 0
    for batch in read_batches(path, BATCH_ROWS):
        if columns is None:
            columns = find(batch.schema.names, path.name, schema, look=False)
        for name in columns.names.values():
            yield text_column(batch, name, path.name, before, "--text")
        before += batch.num_rows
