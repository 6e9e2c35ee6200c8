"""How many texts a second models generate, beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stillery.data.tokens.encode import Tokens
from stillery.evaluation.generate import Decoding, generate_ids

__all__ = ["EXAMPLES", "generation_speed"]

EXAMPLES = 16
"""Texts of a measurement at most, so that it costs little beside scoring a split."""

_TURNS = 2

Writer = tuple[PreTrainedModel, PreTrainedTokenizerBase, Tokens]


def generation_speed(writers: Sequence[Writer], decoding: Decoding, batch_size: int) -> list[float]:
    """Texts a second of each model, from its prompts, which are of the same examples.

    A text takes as many forward passes as it has tokens and a search has beams, so the time of one pass says little.
    All models search alike, on the same device and in batches of one size. They take turns, so that a busy machine
    slows all of them; the faster turn of each counts, as the first one also warms up.
    """
    seconds: list[list[float]] = [[] for _ in writers]
    for _ in range(_TURNS):
        for times, (model, tokenizer, prompts) in zip(seconds, writers, strict=True):
            began = perf_counter()
            generate_ids(model, tokenizer, prompts, decoding=decoding, batch_size=batch_size, description=None)
            times.append(perf_counter() - began)
    return [len(prompts) / max(min(times), 1e-9) for times, (_, _, prompts) in zip(seconds, writers, strict=True)]
