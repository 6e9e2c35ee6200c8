"""Generate texts with sequence-to-sequence and causal models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from stillery.data.tokens.batches import Indices, in_order
from stillery.data.tokens.encode import Tokens
from stillery.data.tokens.encode_generation import end_of
from stillery.errors import ErrorList, UserError
from stillery.evaluation.inference_mode import device_of, evaluating
from stillery.models.kv_cache import cache_of
from stillery.models.quiet import quiet
from stillery.models.sampling import NEUTRAL_GENERATION, NEUTRAL_SAMPLING
from stillery.progress import track

__all__ = ["Decoding", "end_ids", "generate", "generate_ids", "left_aside"]


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Decoding settings: greedy search, beam search or sampling.

    The papers use 4 beams for T5 on WMT and 5 for BART on DART, both with at most 128 tokens.

    Attributes:
        beams: the number of beams; 1 is greedy search.
        max_new_tokens: the largest number of new tokens, the end token included.
        min_new_tokens: the smallest number of new tokens.
        length_penalty: beams are ranked by log p / length^penalty; above 0 favours long texts, below 0 short ones.
        no_repeat_ngram: no n-gram of this length appears twice in a text (a causal model's prompt counts as text);
            0 allows every repetition.
        sample: sample each token instead of searching for the most probable text; needs one beam.
        temperature: the divisor of logits before sampling; below 1 is less random.
        top_p: nucleus sampling from the most probable tokens with this total probability.
        early_stopping: stop as soon as there are as many finished texts as beams, instead of when no unfinished beam
            can still overtake the best of them.
    """

    beams: int = 4
    max_new_tokens: int = 128
    min_new_tokens: int = 0
    length_penalty: float = 1.0
    no_repeat_ngram: int = 0
    sample: bool = False
    temperature: float = 1.0
    top_p: float = 1.0
    early_stopping: bool = False

    def __post_init__(self) -> None:
        errors = ErrorList()
        if self.beams < 1:
            errors.add(f"beams must be at least 1, not {self.beams}")
        if self.max_new_tokens < 1:
            errors.add(f"max_new_tokens must be at least 1, not {self.max_new_tokens}")
        if not 0 <= self.min_new_tokens <= self.max_new_tokens:
            errors.add(f"min_new_tokens must be from 0 to max_new_tokens, not {self.min_new_tokens}")
        if self.no_repeat_ngram < 0:
            errors.add(f"no_repeat_ngram must be at least 0, not {self.no_repeat_ngram}")
        if self.temperature <= 0:
            errors.add(f"temperature must be above 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            errors.add(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.sample and self.beams != 1:
            errors.add(f"sampling draws one text at a time; set beams to 1, not {self.beams}")
        if not self.sample and (self.temperature != 1 or self.top_p != 1):
            errors.add("temperature and top_p count only when sampling; set sample")
        errors.raise_any()


def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tokens: Tokens,
    *,
    decoding: Decoding,
    batch_size: int = 32,
    seed: int = 0,
    description: str | None = "generate",
) -> list[str]:
    """Generate a text for each prompt, in the order of the examples, without prompt and special tokens.

    Args:
        model: an encoder-decoder or a causal model; it stays on its device and is not changed.
        tokenizer: the model's own.
        tokens: the prompts; an encoder-decoder encodes them, a causal model continues them.
        decoding: the decoding settings. Those of the checkpoint are ignored, except its start and end tokens and its
            forced or forbidden ones. A text also ends with the token that the tokenizer ends targets with (`end_ids`).
        batch_size: the number of prompts per batch, halved when memory runs out. Neither it nor the padding changes the
            result of a search.
        seed: the seed of the sampling, which also depends on `batch_size`.
        description: the title of the progress bar, None for none.
    """
    texts = generate_ids(
        model, tokenizer, tokens, decoding=decoding, batch_size=batch_size, seed=seed, description=description
    )
    return [str(tokenizer.decode(text, skip_special_tokens=True)) for text in texts]


def end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that end a text: those of the model's configuration, and the one that the tokenizer ends targets with.

    They differ for checkpoints whose tokenizer has another end token than their configuration.
    """
    configured = _configured(model, "eos_token_id")
    own = configured if isinstance(configured, list | tuple) else [] if configured is None else [configured]
    try:
        of_targets = [end_of(tokenizer)]
    except UserError:
        of_targets = []
    return list(dict.fromkeys([*map(int, own), *of_targets]))


def left_aside(model: PreTrainedModel) -> dict[str, Any]:
    """The settings of a checkpoint's generation config that `generate` replaces by neutral ones.

    The search settings and the use of the KV cache are not among them.
    """
    own = model.generation_config
    neutral = {name: value for name, value in NEUTRAL_GENERATION.items() if name not in ("use_cache", "max_time")}
    return {name: value for name, value in neutral.items() if getattr(own, name, None) not in (None, value)}


def generate_ids(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tokens: Tokens,
    *,
    decoding: Decoding,
    batch_size: int = 32,
    seed: int = 0,
    description: str | None = "generate",
    on_batch: Callable[[dict[int, list[int]]], None] | None = None,
) -> list[list[int]]:
    """Generate texts as token ids, in the form of tokenised targets: with the end token, without the start token.

    Sequence-level distillation trains on texts generated by a teacher. A text truncated at `max_new_tokens` has no end
    token, not even the one that BART is forced to generate there. `on_batch` is called after each batch with its texts
    by row. The other arguments are those of `generate`.
    """
    _check(model, tokens, decoding)
    device = device_of(model)
    pad, end, forced = _pad_id(model, tokenizer), end_ids(model, tokenizer), _configured(model, "forced_eos_token_id")
    batches = in_order(tokens.lengths, batch_size)
    texts: list[list[int]] = [[] for _ in range(len(tokens))]
    with evaluating(model), torch.inference_mode(), quiet(), _seeded(seed, device):
        config = _generation_config(model, decoding, pad, end)
        for index in track(batches, description):
            for row, text in zip(index, _generated(model, tokens, index, pad, config), strict=True):
                texts[row] = _up_to_end(text, end)
                if forced is not None and len(texts[row]) == decoding.max_new_tokens:
                    texts[row] = texts[row][:-1]
            if on_batch is not None:
                on_batch({int(row): texts[row] for row in index})
    return texts


def _generated(
    model: PreTrainedModel, tokens: Tokens, index: Indices, pad: int, config: GenerationConfig
) -> list[list[int]]:
    """Generate from one batch of prompts, with the padding; the batch is halved when memory runs out."""
    ids, mask = _padded(tokens, index, pad, left=not model.config.is_encoder_decoder)
    device = device_of(model)
    try:
        inputs = {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
        output: Tensor = cast(Any, model).generate(**inputs, **cache_of(model), generation_config=config)
    except torch.OutOfMemoryError:
        if len(index) == 1:
            raise
    else:
        # An encoder-decoder's text begins with its start token, a causal model's with the prompt.
        start = 1 if model.config.is_encoder_decoder else ids.shape[1]
        texts: list[list[int]] = output[:, start:].tolist()
        return texts
    # Outside of the handler, which would keep the tensors that filled the memory alive.
    halves = np.array_split(index, 2)
    return [text for half in halves for text in _generated(model, tokens, half, pad, config)]


def _check(model: PreTrainedModel, tokens: Tokens, decoding: Decoding) -> None:
    name = type(model).__name__
    if not model.can_generate():
        raise UserError(f"{name} cannot generate text; a sequence-to-sequence or causal language model is needed")
    if len(tokens) == 0:
        raise UserError("there are no examples to generate from")
    empty = int((tokens.lengths == 0).sum())
    if empty:
        first = int(tokens.lengths.argmin()) + 1
        raise UserError(
            f"{empty} of {len(tokens)} prompts have no tokens to start from, the first is that of row {first}"
        )
    # Models with relative positions (T5) have no limit and no such entry.
    limit = getattr(model.config, "max_position_embeddings", None)
    longest, new = int(tokens.lengths.max()), decoding.max_new_tokens
    needed = max(longest, new) if model.config.is_encoder_decoder else longest + new
    if limit is not None and needed > limit:
        raise UserError(
            f"{name} has {limit} positions, too few for prompts of up to {longest} tokens and {new} new ones; "
            "shorten the prompts or lower max_new_tokens"
        )


def _generation_config(model: PreTrainedModel, decoding: Decoding, pad: int, end: list[int]) -> GenerationConfig:
    settings: dict[str, Any] = {
        "num_beams": decoding.beams,
        "max_new_tokens": decoding.max_new_tokens,
        "min_new_tokens": decoding.min_new_tokens,
        "length_penalty": decoding.length_penalty,
        "no_repeat_ngram_size": decoding.no_repeat_ngram,
        "do_sample": decoding.sample,
        "early_stopping": decoding.early_stopping,
        **NEUTRAL_GENERATION,
        "pad_token_id": pad,
        "eos_token_id": end or None,
    }
    if decoding.sample:
        settings |= NEUTRAL_SAMPLING | {"temperature": decoding.temperature, "top_p": decoding.top_p}
    if model.config.is_encoder_decoder:
        settings["decoder_start_token_id"] = _configured(model, "decoder_start_token_id")
        if settings["decoder_start_token_id"] is None:
            raise UserError(
                f"{type(model).__name__}: its configuration has no decoder_start_token_id to start a text with"
            )
    return GenerationConfig(**settings)


def _padded(tokens: Tokens, index: Indices, pad: int, *, left: bool) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask of some prompts, `[prompts, longest]`."""
    width = int(tokens.lengths[index].max())
    ids = torch.full((len(index), width), pad, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, example in enumerate(index):
        prompt = torch.from_numpy(tokens.flat[tokens.offsets[example] : tokens.offsets[example + 1]])
        place = slice(width - len(prompt), width) if left else slice(0, len(prompt))
        ids[row, place] = prompt.long()
        mask[row, place] = 1
    return ids, mask


def _up_to_end(text: list[int], end: list[int]) -> list[int]:
    """A text up to its first end token, without the padding after it."""
    size = next((place + 1 for place, token in enumerate(text) if token in end), len(text))
    return text[:size]


def _pad_id(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The padding token; models without one (GPT-2) get any token, because padding is masked."""
    found = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else _configured(model, "pad_token_id")
    return int(found) if found is not None else (end_ids(model, tokenizer) or [0])[0]


def _configured(model: PreTrainedModel, name: str) -> Any:
    """A setting of the generation config or, if it is not set there, of the model's configuration."""
    values = (getattr(config, name, None) for config in (model.generation_config, model.config))
    return next((value for value in values if value is not None), None)


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the random number generators inside the block, and restore their state afterwards."""
    devices, kind = ([], "cuda") if device.type == "cpu" else ([device], device.type)
    with torch.random.fork_rng(devices=devices, device_type=kind):
        torch.manual_seed(seed)
        yield
