"""Generation speed of models in texts per second, measured side by side."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stillery.data.tokens.encode import Tokens
from stillery.evaluation.generate import Decoding, generate_ids

__all__ = ["EXAMPLES", "generation_speed"]

EXAMPLES = 16
"""The largest number of texts in a measurement, so that it is cheap compared with scoring a split."""

_TURNS = 2

Writer = tuple[PreTrainedModel, PreTrainedTokenizerBase, Tokens]


def generation_speed(writers: Sequence[Writer], decoding: Decoding, batch_size: int) -> list[float]:
    """Measure the texts per second of each model, from its own prompts of the same examples.

    A text takes a forward pass for each token and beam, so the latency of one pass says little. All models decode with
    the same settings and batch size on the same device. They take turns, so that a busy machine slows all of them; the
    faster turn of each counts, as the first one also warms up.
    """
    seconds: list[list[float]] = [[] for _ in writers]
    for _ in range(_TURNS):
        for times, (model, tokenizer, prompts) in zip(seconds, writers, strict=True):
            began = perf_counter()
            generate_ids(model, tokenizer, prompts, decoding=decoding, batch_size=batch_size, description=None)
            times.append(perf_counter() - began)
    return [len(prompts) / max(min(times), 1e-9) for times, (_, _, prompts) in zip(seconds, writers, strict=True)]
