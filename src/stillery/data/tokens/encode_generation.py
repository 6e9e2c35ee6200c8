"""Tokenisation of sources and target texts for encoder-decoders and decoders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from transformers import BatchEncoding, PreTrainedTokenizerBase

from stillery.data.schema.examples import Examples
from stillery.data.tokens.encode import Tokens, tokenise_with
from stillery.errors import UserError

__all__ = [
    "PROMPT",
    "GenerationFormat",
    "GenerationTokens",
    "check_room",
    "end_of",
    "prompts",
    "tokenise_generation",
    "with_targets",
]

PROMPT = "{source}\n"
"""The default prompt template of a decoder."""

SOURCE = "{source}"


@dataclass(frozen=True, kw_only=True)
class GenerationFormat:
    """The settings by which sources and targets are tokenised for one kind of model.

    Args:
        kind: "encoder-decoder" or "decoder".
        max_source: the maximum tokens of an encoder's input, or of a decoder's prompt; see `prompts`.
        max_target: the maximum tokens of a target, end token included.
        prompt: a decoder's prompt template, with {source} for the source.
        prefix: the text before each source of an encoder-decoder, such as T5's "translate English to German: ".
    """

    kind: str
    max_source: int
    max_target: int
    prompt: str = PROMPT
    prefix: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class GenerationTokens:
    """Token ids of examples, in flat arrays.

    For an encoder-decoder, `source` has the encoder inputs and `target` the decoder targets with their end tokens. For
    a decoder, `source` has prompt, target and end token in one row, and `prompt_lengths` the number of prompt tokens;
    `target` is None. `cut_sources` and `cut_targets` count truncated ones.
    """

    ids: tuple[str, ...]
    source: Tokens
    target: Tokens | None
    prompt_lengths: NDArray[np.int64] | None
    cut_sources: int
    cut_targets: int

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def encoder_lengths(self) -> NDArray[np.int64] | None:
        """The number of encoder input tokens of each example; None without an encoder."""
        return None if self.target is None else self.source.lengths

    @property
    def decoder_lengths(self) -> NDArray[np.int64]:
        """The number of decoder tokens of each example."""
        return self.source.lengths if self.target is None else self.target.lengths

    @cached_property
    def target_lengths(self) -> NDArray[np.int64]:
        """The number of scored tokens of each example, its end token included."""
        return self.decoder_lengths if self.prompt_lengths is None else self.source.lengths - self.prompt_lengths

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of each example in encoder and decoder together, by which examples are sorted."""
        return self.decoder_lengths if self.encoder_lengths is None else self.encoder_lengths + self.decoder_lengths


def tokenise_generation(
    examples: Examples, tokenizer: PreTrainedTokenizerBase, form: GenerationFormat, description: str = "tokenise"
) -> GenerationTokens:
    """Tokenise sources and targets for training a model of this kind.

    Every target ends with the end token, truncated or not. An encoder-decoder's target is tokenised as `text_target`;
    the decoder start token is not part of it, but BART's `<s>`, which it generates first, is. A decoder's prompt and
    target are tokenised separately and joined, so that generation starts from exactly the tokens that preceded the
    target in training.
    """
    if examples.get("target") is None:
        raise UserError(
            f"{examples.source}: there are no targets to learn from; name their column, or have them written"
        )
    source = prompts(examples, tokenizer, form, f"{description} sources")
    title = f"{description} targets"
    if form.kind == "decoder":
        return _one_row(examples, tokenizer, source, form.max_target, title)
    target = _targets(examples["target"], tokenizer, form.max_target, title, target=True)
    return GenerationTokens(
        ids=examples.ids,
        source=source,
        target=target,
        prompt_lengths=None,
        cut_sources=source.truncated,
        cut_targets=target.truncated,
    )


def prompts(
    examples: Examples, tokenizer: PreTrainedTokenizerBase, form: GenerationFormat, description: str = "tokenise"
) -> Tokens:
    """Tokenise the inputs for generation with a model of this kind: encoder inputs or decoder prompts.

    They are truncated to `max_source` tokens, whatever length the tokenizer recommends. An encoder's input is truncated
    by the tokenizer, at its end. A decoder's prompt that is too long loses the end of its source: the part of the
    template after the source is kept, and is then tokenised separately. A decoder's prompt begins with the start token
    if the tokenizer adds one to texts.
    """
    check_room(tokenizer, form)
    if form.kind == "encoder-decoder":
        return _encoded(_framed(form.prefix, examples["source"], ""), tokenizer, form.max_source, description)
    return _decoder_prompts(examples, tokenizer, form.max_source, form.prompt, description)


def check_room(tokenizer: PreTrainedTokenizerBase, form: GenerationFormat) -> None:
    """Raise UserError for a prompt or prefix that leaves no room for a source, and a prompt without {source}."""
    if form.kind == "encoder-decoder":
        special, own = tokenizer.num_special_tokens_to_add(pair=False), _size(form.prefix, tokenizer)
        if form.max_source <= special + own:
            beside = f"{own} of the prefix and {special} special" if own else f"{special} special"
            raise UserError(
                f"an input of at most {form.max_source} tokens has no room for a source beside {beside}; "
                f"raise --max-length{' or shorten --prefix' if own else ''}"
            )
        return
    if form.kind != "decoder":
        raise UserError(f"a model of kind {form.kind!r} writes no text; use an encoder-decoder or a decoder")
    before, behind = _around(form.prompt)
    start, own = len(_start(tokenizer)), _size(before, tokenizer) + len(_ids(behind, tokenizer))
    if form.max_source <= start + own:
        beside = f"{own} of its template and {start} special" if start else f"{own} of its template"
        raise UserError(
            f"a prompt of at most {form.max_source} tokens has no room for a source beside {beside}; "
            "raise --max-length, lower --max-target-length or shorten --prompt"
        )


def with_targets(ids: tuple[str, ...], source: Tokens, targets: Sequence[Sequence[int]], kind: str) -> GenerationTokens:
    """Combine the result of `prompts` with targets generated by a model as token ids.

    They have their end token, or none if generation was cut off, so that none counts as truncated here.
    """
    rows = [np.asarray(target, dtype=np.int32) for target in targets]
    limit = max(map(len, rows), default=0)
    cut_sources, lengths = source.truncated, None
    if kind == "decoder":
        lengths, longest = source.lengths, (source.max_length or 0) + limit
        pairs = zip(_rows(source), rows, strict=True)
        source = _joined([np.concatenate(pair) for pair in pairs], truncated=0, limit=longest)
    return GenerationTokens(
        ids=ids,
        source=source,
        target=None if kind == "decoder" else _joined(rows, truncated=0, limit=limit),
        prompt_lengths=lengths,
        cut_sources=cut_sources,
        cut_targets=0,
    )


def end_of(tokenizer: PreTrainedTokenizerBase) -> int:
    """The token that ends a text: the end token, else the separator token."""
    for token in (tokenizer.eos_token_id, tokenizer.sep_token_id):
        if token is not None:
            return int(token)
    raise UserError(f"{type(tokenizer).__name__}: it has no end token, so that a model could not learn where to stop")


def _decoder_prompts(
    examples: Examples, tokenizer: PreTrainedTokenizerBase, limit: int, prompt: str, description: str
) -> Tokens:
    before, behind = _around(prompt)
    start = _start(tokenizer)
    whole = _encoded(_framed(before, examples["source"], behind), tokenizer, None, description, special=False)
    long = np.flatnonzero(whole.lengths + len(start) > limit)
    tail = _ids(behind, tokenizer)
    room = limit - len(start) - len(tail)
    rows = _rows(whole)
    if len(long):
        opened = _framed(before, examples["source"].take(pa.array(long)), "")
        cut = _encoded(opened, tokenizer, None, f"{description} again", special=False)
        for row, tokens in zip(long, _rows(cut), strict=True):
            rows[row] = np.concatenate([tokens[:room], np.array(tail, dtype=np.int32)])
    first = np.array(start, dtype=np.int32)
    found_tokens = _joined([np.concatenate([first, row]) for row in rows], truncated=len(long), limit=limit)
    bare = np.flatnonzero(found_tokens.lengths == 0)
    if len(bare):
        raise UserError(f"{examples.source}: the prompt of example {examples.ids[bare[0]]} has no tokens")
    return found_tokens


def _one_row(
    examples: Examples, tokenizer: PreTrainedTokenizerBase, source: Tokens, max_target: int, description: str
) -> GenerationTokens:
    """Join each prompt and its target into one row."""
    assert source.max_length is not None
    most = source.max_length + max_target
    target = _targets(examples["target"], tokenizer, max_target, description, target=False)
    pairs = zip(_rows(source), _rows(target), strict=True)
    return GenerationTokens(
        ids=examples.ids,
        source=_joined([np.concatenate(pair) for pair in pairs], truncated=0, limit=most),
        target=None,
        prompt_lengths=source.lengths,
        cut_sources=source.truncated,
        cut_targets=target.truncated,
    )


def _targets(
    texts: pa.Array, tokenizer: PreTrainedTokenizerBase, limit: int, description: str, *, target: bool
) -> Tokens:
    """Tokenise targets with their end token and, with `target`, the tokenizer's other special tokens for targets."""
    end = end_of(tokenizer)
    bare = tokenizer(text_target="")["input_ids"] if target else []
    ended = bare[-1:] == [end]
    if limit <= len(bare) + (not ended):
        raise UserError(f"a target of at most {limit} tokens has no room for text beside its special ones")
    # If the tokenizer adds the end token itself, it also keeps it when truncating.
    found = _encoded(texts, tokenizer, limit if ended else limit - 1, description, special=target, target=target)
    if ended:
        return found
    last = np.array([end], dtype=np.int32)
    rows = [np.concatenate([row, last]) for row in _rows(found)]
    return _joined(rows, truncated=found.truncated, limit=limit)


def _encoded(
    texts: pa.Array,
    tokenizer: PreTrainedTokenizerBase,
    limit: int | None,
    description: str,
    *,
    special: bool = True,
    target: bool = False,
) -> Tokens:
    def encode(some: list[str], pairs: list[str] | None, limit: int | None) -> BatchEncoding:
        given: dict[str, Any] = {"text_target" if target else "text": some}
        given |= {"truncation": limit is not None, "max_length": limit, "add_special_tokens": special}
        given |= {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        encoded: BatchEncoding = tokenizer(**given)
        return encoded

    return tokenise_with(encode, tokenizer, texts, None, limit, description)


def _start(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The start token that the tokenizer adds to every text, if any."""
    given: list[int] = tokenizer("")["input_ids"][:1]
    return given if given and given[0] in (tokenizer.bos_token_id, tokenizer.cls_token_id) else []


def _around(prompt: str) -> tuple[str, str]:
    """The parts of a template before and after its source."""
    before, found, behind = prompt.partition(SOURCE)
    if not found or SOURCE in behind:
        raise UserError(f"the prompt {prompt!r} must have {SOURCE} in it once, where the source goes")
    return before, behind


def _ids(text: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    found: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] if text else []
    return found


def _size(before: str, tokenizer: PreTrainedTokenizerBase) -> int:
    """The number of tokens before a source; a final space merges with the first word of the source."""
    return len(_ids(before.removesuffix(" "), tokenizer))


def _framed(before: str, texts: pa.Array, behind: str) -> pa.Array:
    if not before and not behind:
        return texts
    parts = [pa.scalar(before, pa.large_string()), texts, pa.scalar(behind, pa.large_string())]
    return pc.binary_join_element_wise(*parts, pa.scalar("", pa.large_string()))


def _rows(tokens: Tokens) -> list[NDArray[np.int32]]:
    return np.split(tokens.flat, tokens.offsets[1:-1]) if len(tokens) else []


def _joined(rows: list[NDArray[np.int32]], truncated: int, limit: int) -> Tokens:
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    return Tokens(
        flat=np.concatenate(rows) if rows else np.zeros(0, dtype=np.int32),
        offsets=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]),
        types=None,
        truncated=truncated,
        max_length=limit,
    )
