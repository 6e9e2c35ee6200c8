"""Texts the student writes itself to learn from, which the teacher then scores: the remedy for exposure bias.

At such a step the targets of a batch are what the student samples for its sources. Predictions and layers are matched
along them; the labels' loss is left out, as the right texts are others. When that happens and what is sampled are
functions of the clock and the student's weights, so that a run that goes on is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel

from stillery.data.tokens.batches import Batch
from stillery.ignored import IGNORED
from stillery.models.family import kind_of
from stillery.models.kv_cache import cache_of
from stillery.models.quiet import quiet
from stillery.models.sampling import NEUTRAL_GENERATION, NEUTRAL_SAMPLING
from stillery.recipe import Clock, Rows
from stillery.train.data import counted, shown_rows
from stillery.train.microbatches import Part
from stillery.train.seeds import seed_generators, step_seed

__all__ = ["OnPolicy", "on_policy", "writes_itself"]


@dataclass(frozen=True, kw_only=True)
class OnPolicy:
    """In which share of the steps the student writes the targets, and how: tokens at most, and which end and pad.

    `drop_start` as for the `Objective`.
    """

    rate: float
    max_new_tokens: int
    end_ids: tuple[int, ...]
    pad_id: int
    temperature: float = 1.0
    drop_start: bool = False


def writes_itself(policy: OnPolicy, clock: Clock) -> bool:
    """Whether the student writes the targets of this step."""
    return bool(np.random.default_rng([clock.seed, clock.step, 0x0517]).random() < policy.rate)


def on_policy(
    parts: Sequence[Part], student: PreTrainedModel, policy: OnPolicy, clock: Clock, accelerator: Accelerator
) -> list[Part]:
    """The micro-batches of a step with what the student writes as targets, and their shares of the rows it wrote."""
    written = []
    for number, part in enumerate(parts):
        seed_generators(step_seed(clock.seed, clock.step, number, accelerator.process_index), accelerator.device)
        with accelerator.autocast():
            written.append(_written(student, part.batch, policy))
    rows = [_rows(batch, student, policy.drop_start) for batch in written]
    total: Counter[Rows] = Counter()
    for one in rows:
        total.update(one)
    return [
        replace(
            part,
            batch=batch,
            share=dict(part.share) | {name: count / max(total[name], 1) for name, count in one.items()},
            kept=None,
        )
        for batch, one, part in zip(written, rows, parts, strict=True)
    ]


def _written(student: PreTrainedModel, batch: Batch, policy: OnPolicy) -> Batch:
    """A batch with targets that the student samples."""
    reads = kind_of(student.config) == "encoder-decoder"
    inputs = {name: batch.inputs[name] for name in ("input_ids", "attention_mask")}
    prompts = inputs if reads else _prompts(batch.inputs, policy.pad_id)
    config = GenerationConfig(
        do_sample=True, temperature=policy.temperature, num_beams=1, no_repeat_ngram_size=0, min_length=0,
        min_new_tokens=0, max_new_tokens=policy.max_new_tokens, eos_token_id=list(policy.end_ids),
        pad_token_id=policy.pad_id, **NEUTRAL_GENERATION, **NEUTRAL_SAMPLING,
    )  # fmt: skip
    training = student.training
    student.eval()
    try:
        with torch.no_grad(), quiet():
            generate: Any = student.generate
            sampled: Tensor = generate(**prompts, **cache_of(student), generation_config=config)
    finally:
        student.train(training)
    # An encoder-decoder's texts begin with its start token, a decoder's with the prompt.
    tokens = sampled[:, 1:] if reads else sampled[:, prompts["input_ids"].shape[1] :]
    ends = torch.isin(tokens, tokens.new_tensor(policy.end_ids)).long()
    real = ends.cumsum(1) - ends == 0
    if reads:
        return replace(batch, inputs=inputs | {"labels": tokens.masked_fill(~real, IGNORED)}, generated=True)
    return replace(batch, inputs=_joined(prompts, tokens, real, policy.pad_id), generated=True)


def _prompts(inputs: dict[str, Tensor], pad_id: int) -> dict[str, Tensor]:
    """The tokens before the first scored one, padded on the left."""
    scored = inputs["labels"] != IGNORED
    lengths = torch.where(scored.any(1), scored.long().argmax(1), inputs["attention_mask"].sum(1))
    width = int(lengths.max())
    places = torch.arange(width, device=lengths.device) - (width - lengths)[:, None]
    real = places >= 0
    ids = inputs["input_ids"].gather(1, places.clamp(min=0)).masked_fill(~real, pad_id)
    return {"input_ids": ids, "attention_mask": real.long()}


def _joined(prompts: dict[str, Tensor], tokens: Tensor, real: Tensor, pad_id: int) -> dict[str, Tensor]:
    """Prompts and what was written behind them, padded on the right, with the written tokens as labels."""
    ids = torch.cat([prompts["input_ids"], tokens], dim=1)
    mask = torch.cat([prompts["attention_mask"].bool(), real], dim=1)
    written = torch.cat([torch.zeros_like(prompts["attention_mask"]).bool(), real], dim=1)
    # Real tokens first, in their order.
    order = (~mask).long().argsort(dim=1, stable=True)
    ids, mask, written = (each.gather(1, order) for each in (ids, mask, written))
    return {
        "input_ids": ids.masked_fill(~mask, pad_id),
        "attention_mask": mask.long(),
        "labels": ids.masked_fill(~written, IGNORED),
    }


def _rows(batch: Batch, student: PreTrainedModel, drop_start: bool) -> dict[Rows, int]:
    """How many rows of each kind a written batch has."""
    mask, scored = batch.inputs["attention_mask"].sum(1), (batch.inputs["labels"] != IGNORED).sum(1)
    reads = kind_of(student.config) == "encoder-decoder"
    encoder = mask.cpu().numpy() if reads else None
    decoder = shown_rows((scored if reads else mask).cpu().numpy(), drop_start and reads)
    found: dict[Rows, int] = {"targets": int(scored.sum())}
    return found | counted(encoder, decoder)
