"""Cache of tokenised texts on disk, so that a set of texts is only tokenised once."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import tokenizers
import transformers
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from stillery.data.cache.arrays import Arrays, read_arrays, write_arrays
from stillery.data.cache.folder import find_cache
from stillery.data.schema.examples import Examples
from stillery.data.tokens.encode import Tokens, tokenise
from stillery.data.tokens.encode_generation import GenerationFormat, GenerationTokens, tokenise_generation
from stillery.data.tokens.encode_words import WordTokens, tokenise_words
from stillery.progress import detail

__all__ = [
    "FEWEST",
    "Kept",
    "cached",
    "cached_generation_tokens",
    "cached_tokens",
    "cached_words",
    "described",
    "generation_token_key",
    "quick_description",
    "token_key",
]

# Fewer texts are tokenised faster than they are looked up.
FEWEST = 2000
PLACES = ("name_or_path", "local_files_only", "is_local")


class Tokenised(Protocol):
    """Tokenised examples."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of each example."""


T = TypeVar("T", bound=Tokenised)


@dataclass(frozen=True, kw_only=True)
class Kept(Generic[T]):
    """The cache format of one kind of tokens.

    Args:
        kind: the folder in the cache.
        version: the version of the format, part of every key.
        about: the word for the texts in messages.
        pack: converts tokens to arrays.
        unpack: converts arrays to the tokens of examples.
    """

    kind: str
    version: int
    about: str
    pack: Callable[[T], Arrays]
    unpack: Callable[[Arrays, Examples], T]


def cached(
    kept: Kept[T],
    examples: Examples,
    tokenizer: PreTrainedTokenizerBase,
    settings: Mapping[str, Any],
    make: Callable[[], T],
) -> T:
    """Return the result of `make` from the cache, or compute it and write it to the cache.

    `settings` is everything the tokens depend on besides texts and tokenizer.
    """
    cache = find_cache() if len(examples) >= FEWEST else None
    key = _key(kept, examples, tokenizer, settings) if cache is not None else None
    if cache is None or key is None:
        return make()
    found = read_arrays(cache, kept.kind, key)
    if found is not None:
        detail(f"tokens of {len(examples):,} {kept.about} read from the cache")
        return kept.unpack(found, examples)
    tokens = make()
    packed, count = kept.pack(tokens), int(tokens.lengths.sum())
    if count:
        # Empty arrays are quick to recompute.
        longest = f", at most {packed.facts['max_length']} each" if "max_length" in packed.facts else ""
        about = f"{len(examples):,} {kept.about} of {examples.source}, {count:,} tokens{longest}"
        write_arrays(cache, kept.kind, key, packed, about)
    return tokens


def cached_tokens(
    examples: Examples, tokenizer: PreTrainedTokenizerBase, max_length: int, description: str = "tokenise"
) -> Tokens:
    """Return the result of `tokenise`, from the cache if it is there."""
    settings = _settings(tokenizer, max_length)
    return cached(_TEXTS, examples, tokenizer, settings, lambda: tokenise(examples, tokenizer, max_length, description))


def token_key(examples: Examples, tokenizer: PreTrainedTokenizerBase, max_length: int) -> str | None:
    """The sha256 of everything the tokens depend on: texts, tokenizer, length, versions; not ids and labels.

    None if it cannot be determined: a tokenizer class outside transformers may do anything.
    """
    return _key(_TEXTS, examples, tokenizer, _settings(tokenizer, max_length))


def cached_generation_tokens(
    examples: Examples, tokenizer: PreTrainedTokenizerBase, form: GenerationFormat, description: str = "tokenise"
) -> GenerationTokens:
    """Return the result of `tokenise_generation`, from the cache if it is there."""

    def make() -> GenerationTokens:
        return tokenise_generation(examples, tokenizer, form, description)

    if examples.get("target") is None:
        return make()
    return cached(_SOURCES, examples, tokenizer, _generation_settings(form), make)


def cached_words(
    examples: Examples, tokenizer: PreTrainedTokenizerBase, max_length: int, description: str = "tokenise"
) -> WordTokens:
    """Return the result of `tokenise_words` for the column `tokens`, from the cache if it is there."""

    def make() -> WordTokens:
        return tokenise_words(examples["tokens"], tokenizer, max_length, description)

    return cached(_WORDS, examples, tokenizer, _settings(tokenizer, max_length), make)


def generation_token_key(examples: Examples, tokenizer: PreTrainedTokenizerBase, form: GenerationFormat) -> str | None:
    """The sha256 of everything the tokens depend on: texts, tokenizer, format, versions; not ids.

    None if it cannot be determined: a tokenizer class outside transformers may do anything.
    """
    return _key(_SOURCES, examples, tokenizer, _generation_settings(form))


def described(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any] | None:
    """Describe a tokenizer by JSON values that determine its behaviour; None if that is impossible."""
    if not type(tokenizer).__module__.startswith("transformers."):
        return None
    around = _around(tokenizer)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        inner = json.loads(backend.to_str())
        # Truncation and padding are set by each call, and are not part of the tokenizer.
        inner["truncation"] = inner["padding"] = None
        return around | {"backend": inner}
    files = _vocabulary_files(tokenizer)
    if files is None:
        return None
    settings = {
        name: repr(sorted(value) if isinstance(value, (set, frozenset)) else value)
        for name, value in (tokenizer.init_kwargs | _plain_attributes(tokenizer)).items()
        if name not in PLACES and not name.endswith("_file")
    }
    return around | {"settings": settings, "vocabulary": tokenizer.get_vocab(), "files": files}


def quick_description(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """A checksum that is another one where `described` is; None where only that can tell.

    It takes a tenth of the time, and also differs for the same tokenizer in another state: truncation, padding, order.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not type(tokenizer).__module__.startswith("transformers."):
        return None
    around = json.dumps(_around(tokenizer), sort_keys=True)
    return hashlib.sha256(f"{around}\n{backend.to_str()}".encode()).hexdigest()


def _around(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """What of a tokenizer's behaviour is not in its backend."""
    return {
        "class": type(tokenizer).__qualname__,
        "inputs": list(tokenizer.model_input_names),
        "sides": [tokenizer.truncation_side, tokenizer.padding_side],
        "special": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "split_special": bool(tokenizer.split_special_tokens),
    }


def _key(
    kept: Kept[Any], examples: Examples, tokenizer: PreTrainedTokenizerBase, settings: Mapping[str, Any]
) -> str | None:
    plain = described(tokenizer)
    if plain is None:
        return None
    pieces = {
        "format": kept.version,
        "versions": [transformers.__version__, tokenizers.__version__],
        "texts": examples.text_fingerprint,
        "tokenizer": plain,
        **settings,
    }
    return hashlib.sha256(json.dumps(pieces, sort_keys=True).encode()).hexdigest()


def _settings(tokenizer: PreTrainedTokenizerBase, max_length: int) -> dict[str, Any]:
    return {"max_length": min(max_length, tokenizer.model_max_length)}


def _generation_settings(form: GenerationFormat) -> dict[str, Any]:
    around = form.prompt if form.kind == "decoder" else form.prefix
    return {"kind": form.kind, "longest": [form.max_source, form.max_target], "around": around}


def _vocabulary_files(tokenizer: PreTrainedTokenizerBase) -> dict[str, str] | None:
    """The checksums of the vocabulary files of a slow tokenizer, including merges."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            tokenizer.save_vocabulary(folder)
        except (NotImplementedError, OSError, ValueError):
            return None
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(Path(folder).iterdir())}


def _plain_attributes(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """The attributes of the tokenizer with plain values, which may have been set after its creation."""
    return {name: value for name, value in vars(tokenizer).items() if isinstance(value, (bool, int, float, str))}


def _pack(tokens: Tokens) -> Arrays:
    return Arrays(arrays=tokens.arrays(), facts={"truncated": tokens.truncated, "max_length": tokens.max_length})


def _unpack(kept: Arrays, examples: Examples) -> Tokens:
    return Tokens(
        flat=kept.arrays["flat"],
        offsets=kept.arrays["offsets"],
        types=kept.arrays.get("types"),
        truncated=int(kept.facts["truncated"]),
        max_length=kept.facts["max_length"],
    )


def _pack_generation(tokens: GenerationTokens) -> Arrays:
    arrays = tokens.source.arrays("source")
    facts: dict[str, Any] = {"cut_sources": tokens.cut_sources, "cut_targets": tokens.cut_targets}
    facts |= {"source_length": tokens.source.max_length}
    if tokens.target is not None:
        arrays |= tokens.target.arrays("target")
        facts |= {"target_length": tokens.target.max_length}
    if tokens.prompt_lengths is not None:
        arrays |= {"prompt_lengths": tokens.prompt_lengths}
    return Arrays(arrays=arrays, facts=facts)


def _unpack_generation(kept: Arrays, examples: Examples) -> GenerationTokens:
    prompts = kept.arrays.get("prompt_lengths")

    def tokens(name: str, cut: int) -> Tokens:
        return Tokens(
            flat=kept.arrays[name],
            offsets=kept.arrays[f"{name}_offsets"],
            types=None,
            truncated=int(cut),
            max_length=kept.facts[f"{name}_length"],
        )

    return GenerationTokens(
        ids=examples.ids,
        # Rows of prompt and target are joined from truncated parts, and do not count as truncated themselves.
        source=tokens("source", kept.facts["cut_sources"] if prompts is None else 0),
        target=tokens("target", kept.facts["cut_targets"]) if "target" in kept.arrays else None,
        prompt_lengths=prompts,
        cut_sources=int(kept.facts["cut_sources"]),
        cut_targets=int(kept.facts["cut_targets"]),
    )


def _pack_words(words: WordTokens) -> Arrays:
    packed = _pack(words.tokens)
    arrays = {**packed.arrays, "word_offsets": words.offsets, "first": words.first}
    return Arrays(arrays=arrays, facts={**packed.facts, "cut": words.cut, "unread": words.unread})


def _unpack_words(kept: Arrays, examples: Examples) -> WordTokens:
    return WordTokens(
        tokens=_unpack(kept, examples),
        offsets=kept.arrays["word_offsets"],
        first=kept.arrays["first"],
        cut=int(kept.facts["cut"]),
        unread=int(kept.facts["unread"]),
    )


_TEXTS = Kept(kind="tokens", version=1, about="texts", pack=_pack, unpack=_unpack)
_SOURCES = Kept(
    kind="text-tokens", version=2, about="sources and targets", pack=_pack_generation, unpack=_unpack_generation
)
_WORDS = Kept(kind="word-tokens", version=1, about="sentences", pack=_pack_words, unpack=_unpack_words)
