"""Tokenisation of texts into flat arrays of token ids."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from transformers import BatchEncoding, PreTrainedTokenizerBase

from stillery.data.schema.examples import Examples
from stillery.errors import UserError
from stillery.progress import bar

__all__ = ["Tokens", "tokenise", "tokenise_with"]

AT_ONCE = 1000

Encode = Callable[[list[str], list[str] | None, int | None], BatchEncoding]
"""A function that encodes texts and second texts, truncated to a number of tokens unless that is None."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tokens:
    """Concatenated token ids of examples; example i is `flat[offsets[i]:offsets[i + 1]]`."""

    flat: NDArray[np.int32]
    offsets: NDArray[np.int64]
    types: NDArray[np.int8] | None
    truncated: int
    max_length: int | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of each example."""
        return np.diff(self.offsets)

    def arrays(self, prefix: str = "") -> dict[str, NDArray[Any]]:
        """The arrays by name, for caching."""
        named: dict[str, NDArray[Any]] = {prefix or "flat": self.flat}
        named[f"{prefix}_offsets" if prefix else "offsets"] = self.offsets
        return named if self.types is None else named | {"types": self.types}


def tokenise(
    examples: Examples, tokenizer: PreTrainedTokenizerBase, max_length: int, description: str = "tokenise"
) -> Tokens:
    """Tokenise texts or pairs of texts, truncated to `max_length` or to the tokenizer's maximum if that is less."""
    limit = min(max_length, tokenizer.model_max_length)
    texts, pairs = examples["text"], examples.get("text_pair")
    special = tokenizer.num_special_tokens_to_add(pair=pairs is not None)
    if limit <= special:
        raise UserError(
            f"max length {limit} leaves no room for text beside {special} special tokens; raise --max-length"
        )

    def encode(texts: list[str], pairs: list[str] | None, limit: int | None) -> BatchEncoding:
        length = {"truncation": limit is not None, "max_length": limit}
        encoded: BatchEncoding = tokenizer(texts, pairs, **length, return_attention_mask=False, verbose=False)
        return encoded

    return tokenise_with(encode, tokenizer, texts, pairs, limit, description)


def tokenise_with(
    encode: Encode,
    tokenizer: PreTrainedTokenizerBase,
    all_texts: pa.Array,
    all_pairs: pa.Array | None,
    limit: int | None,
    description: str,
) -> Tokens:
    """Tokenise texts with `encode`, a thousand at a time; it may change the tokenizer's truncation and padding."""
    flat: list[NDArray[np.int32]] = []
    types: list[NDArray[np.int8]] = []
    lengths: list[NDArray[np.int64]] = []
    truncated = 0
    with bar(description, len(all_texts)) as shown, _parallel(), _as_before(tokenizer):
        for start in range(0, len(all_texts), AT_ONCE):
            texts = all_texts.slice(start, AT_ONCE).to_pylist()
            pairs = None if all_pairs is None else all_pairs.slice(start, AT_ONCE).to_pylist()
            encoded = encode(texts, pairs, limit)
            rows = encoded["input_ids"]
            sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
            lengths.append(sizes)
            flat.append(_flatten(rows, sizes, np.int32))
            if "token_type_ids" in encoded:
                types.append(_flatten(encoded["token_type_ids"], sizes, np.int8))
            full = np.flatnonzero(sizes == limit).tolist()
            truncated += sum(_was_cut(encode, encoded, texts, pairs, row) for row in full)
            shown.advance(len(rows))
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(_joined(lengths, np.int64))])
    return Tokens(
        flat=_joined(flat, np.int32),
        offsets=offsets,
        types=_joined(types, np.int8) if types else None,
        truncated=truncated,
        max_length=limit,
    )


def _flatten(rows: list[list[int]], sizes: NDArray[np.int64], dtype: Any) -> NDArray[Any]:
    return np.fromiter((token for row in rows for token in row), dtype=dtype, count=int(sizes.sum()))


def _joined(chunks: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(chunks) if chunks else np.zeros(0, dtype=dtype)


def _was_cut(encode: Encode, encoded: BatchEncoding, texts: list[str], pairs: list[str] | None, row: int) -> bool:
    """Return whether an example at the length limit was truncated."""
    if encoded.encodings is not None:
        return bool(encoded.encodings[row].overflowing)
    whole = encode([texts[row]], None if pairs is None else [pairs[row]], None)
    return len(whole["input_ids"][0]) > len(encoded["input_ids"][row])


@contextmanager
def _parallel() -> Iterator[None]:
    """Let the tokenizer use every core inside the block, unless TOKENIZERS_PARALLELISM is set."""
    # Set only here: left on, a process forked later could deadlock in the tokenizer's threads.
    if "TOKENIZERS_PARALLELISM" in os.environ:
        yield
        return
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    try:
        yield
    finally:
        os.environ.pop("TOKENIZERS_PARALLELISM", None)


@contextmanager
def _as_before(tokenizer: PreTrainedTokenizerBase) -> Iterator[None]:
    """Restore the tokenizer's truncation and padding settings after the block, as they are saved with it."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    truncation, padding = (backend.truncation, backend.padding) if backend is not None else (None, None)
    try:
        yield
    finally:
        if backend is not None:
            backend.no_truncation() if truncation is None else backend.enable_truncation(**truncation)
            backend.no_padding() if padding is None else backend.enable_padding(**padding)
