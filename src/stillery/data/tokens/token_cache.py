"""Tokens kept in the cache folder, so that a set of texts is tokenised once."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import tokenizers
import transformers
from transformers import PreTrainedTokenizerBase

from stillery.data.cache.arrays import Arrays, read_arrays, write_arrays
from stillery.data.cache.folder import find_cache
from stillery.data.schema.examples import Examples
from stillery.data.tokens.encode import Tokens, tokenise
from stillery.progress import say

__all__ = ["FEWEST", "cached_tokens", "described", "token_key"]

KIND = "tokens"
FORMAT = 1
# Fewer texts are tokenised in less time than it takes to look them up.
FEWEST = 2000
PLACES = ("name_or_path", "local_files_only", "is_local")


def cached_tokens(
    examples: Examples, tokenizer: PreTrainedTokenizerBase, max_length: int, description: str = "tokenise"
) -> Tokens:
    """What `tokenise` gives, read from the cache when it is there and put there when it is not."""
    cache = find_cache() if len(examples) >= FEWEST else None
    key = token_key(examples, tokenizer, max_length) if cache is not None else None
    if cache is None or key is None:
        return tokenise(examples, tokenizer, max_length, description)
    kept = read_arrays(cache, KIND, key)
    if kept is not None:
        say(f"tokens of {len(examples):,} texts read from the cache")
        return _tokens(kept)
    tokens = tokenise(examples, tokenizer, max_length, description)
    about = f"{len(tokens):,} texts of {examples.source}, {len(tokens.flat):,} tokens, at most {tokens.max_length} each"
    if len(tokens.flat):
        # Nothing cannot be mapped to memory, and is quick to find again.
        write_arrays(cache, KIND, key, _arrays(tokens), about)
    return tokens


def token_key(examples: Examples, tokenizer: PreTrainedTokenizerBase, max_length: int) -> str | None:
    """The sha256 of everything the tokens depend on: texts, tokenizer, length, versions; not of ids and labels.

    None when that cannot be said: a tokenizer of a class outside transformers may do anything.
    """
    plain = described(tokenizer)
    if plain is None:
        return None
    parts = {
        "format": FORMAT,
        "versions": [transformers.__version__, tokenizers.__version__],
        "texts": examples.text_fingerprint,
        "max_length": min(max_length, tokenizer.model_max_length),
        "tokenizer": plain,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def described(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any] | None:
    """A tokenizer as plain values: two that differ in them may differ in what they do."""
    kind = type(tokenizer)
    if not kind.__module__.startswith("transformers."):
        return None
    around = {
        "class": kind.__qualname__,
        "inputs": list(tokenizer.model_input_names),
        "sides": [tokenizer.truncation_side, tokenizer.padding_side],
        "special": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "split_special": bool(tokenizer.split_special_tokens),
    }
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        inner = json.loads(backend.to_str())
        # The last call's, and set anew by each: no part of the tokenizer.
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


def _vocabulary_files(tokenizer: PreTrainedTokenizerBase) -> dict[str, str] | None:
    """The checksums of the files a tokenizer in Python keeps its vocabulary in, merges and all."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            tokenizer.save_vocabulary(folder)
        except (NotImplementedError, OSError, ValueError):
            return None
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(Path(folder).iterdir())}


def _plain_attributes(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """What was set on the tokenizer after it was made, as far as it is plain."""
    return {name: value for name, value in vars(tokenizer).items() if isinstance(value, (bool, int, float, str))}


def _arrays(tokens: Tokens) -> Arrays:
    arrays: dict[str, Any] = {"flat": tokens.flat, "offsets": tokens.offsets}
    if tokens.types is not None:
        arrays["types"] = tokens.types
    return Arrays(arrays=arrays, facts={"truncated": tokens.truncated, "max_length": tokens.max_length})


def _tokens(kept: Arrays) -> Tokens:
    return Tokens(
        flat=kept.arrays["flat"],
        offsets=kept.arrays["offsets"],
        types=kept.arrays.get("types"),
        truncated=int(kept.facts["truncated"]),
        max_length=kept.facts["max_length"],
    )
