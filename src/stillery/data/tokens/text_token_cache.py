"""Tokens of sources and targets kept in the cache folder, so that a set of texts is tokenised once."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import tokenizers
import transformers
from transformers import PreTrainedTokenizerBase

from stillery.data.cache.arrays import Arrays, read_arrays, write_arrays
from stillery.data.cache.folder import find_cache
from stillery.data.schema.text_examples import TextExamples
from stillery.data.tokens.encode import Tokens
from stillery.data.tokens.text_encode import PROMPT, TextTokens, tokenise_text
from stillery.data.tokens.token_cache import FEWEST, described
from stillery.progress import say

__all__ = ["cached_text_tokens", "text_token_key"]

KIND = "text-tokens"
FORMAT = 2


def cached_text_tokens(
    examples: TextExamples,
    tokenizer: PreTrainedTokenizerBase,
    kind: str,
    *,
    max_source: int,
    max_target: int,
    prompt: str = PROMPT,
    prefix: str = "",
    description: str = "tokenise",
) -> TextTokens:
    """What `tokenise_text` gives, read from the cache when it is there and put there when it is not."""
    asked: dict[str, Any] = {"max_source": max_source, "max_target": max_target, "prompt": prompt, "prefix": prefix}
    cache = find_cache() if len(examples) >= FEWEST and examples.targets is not None else None
    key = text_token_key(examples, tokenizer, kind, **asked) if cache is not None else None
    if cache is None or key is None:
        return tokenise_text(examples, tokenizer, kind, **asked, description=description)
    kept = read_arrays(cache, KIND, key)
    if kept is not None:
        say(f"tokens of {len(examples):,} sources and targets read from the cache")
        return _text_tokens(kept, examples.ids)
    tokens = tokenise_text(examples, tokenizer, kind, **asked, description=description)
    about = f"{len(tokens):,} sources and targets of {examples.origin}, {int(tokens.lengths.sum()):,} tokens"
    write_arrays(cache, KIND, key, _arrays(tokens), about)
    return tokens


def text_token_key(
    examples: TextExamples,
    tokenizer: PreTrainedTokenizerBase,
    kind: str,
    *,
    max_source: int,
    max_target: int,
    prompt: str = PROMPT,
    prefix: str = "",
) -> str | None:
    """The sha256 of everything the tokens depend on: texts, tokenizer, kind, lengths, template, versions; not of ids.

    None when that cannot be said: a tokenizer of a class outside transformers may do anything.
    """
    plain = described(tokenizer)
    if plain is None:
        return None
    parts = {
        "format": FORMAT,
        "versions": [transformers.__version__, tokenizers.__version__],
        "texts": examples.text_fingerprint,
        "kind": kind,
        "longest": [max_source, max_target],
        "around": prompt if kind == "decoder" else prefix,
        "tokenizer": plain,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _arrays(tokens: TextTokens) -> Arrays:
    arrays: dict[str, Any] = {"source": tokens.source.flat, "source_offsets": tokens.source.offsets}
    facts: dict[str, Any] = {"cut_sources": tokens.cut_sources, "cut_targets": tokens.cut_targets}
    facts |= {"source_length": tokens.source.max_length}
    if tokens.target is not None:
        arrays |= {"target": tokens.target.flat, "target_offsets": tokens.target.offsets}
        facts |= {"target_length": tokens.target.max_length}
    if tokens.prompt_lengths is not None:
        arrays |= {"prompt_lengths": tokens.prompt_lengths}
    return Arrays(arrays=arrays, facts=facts)


def _text_tokens(kept: Arrays, ids: tuple[str, ...]) -> TextTokens:
    prompts = kept.arrays.get("prompt_lengths")
    # Prompts and targets in one row are joined from what was cut, and count as not cut themselves.
    cut = kept.facts["cut_sources"] if prompts is None else 0
    return TextTokens(
        ids=ids,
        source=_tokens(kept, "source", cut),
        target=_tokens(kept, "target", kept.facts["cut_targets"]) if "target" in kept.arrays else None,
        prompt_lengths=prompts,
        cut_sources=int(kept.facts["cut_sources"]),
        cut_targets=int(kept.facts["cut_targets"]),
    )


def _tokens(kept: Arrays, name: str, cut: int) -> Tokens:
    return Tokens(
        flat=kept.arrays[name],
        offsets=kept.arrays[f"{name}_offsets"],
        types=None,
        truncated=int(cut),
        max_length=kept.facts[f"{name}_length"],
    )
