"""On-policy distillation: the student learns on texts that it generates and the teacher scores.

This is a remedy for exposure bias. At such a step the targets of a batch are sampled from the student. Predictions and
layers are matched on them; the hard loss is left out, as the labels are other texts. The choice of steps and the
samples are functions of the clock and the student's weights, so that a resumed run is exact.
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
from stillery.train.microbatches import MicroBatch
from stillery.train.seeds import seed_generators, step_seed
from stillery.train.trainable import counted, shown_rows

__all__ = ["OnPolicy", "is_on_policy", "with_generated_targets"]


@dataclass(frozen=True, kw_only=True)
class OnPolicy:
    """The share of on-policy steps, and the settings of generation: maximum length, end tokens, padding token.

    `drop_start` as for the `Objective`.
    """

    rate: float
    max_new_tokens: int
    end_ids: tuple[int, ...]
    pad_id: int
    temperature: float = 1.0
    drop_start: bool = False


def is_on_policy(policy: OnPolicy, clock: Clock) -> bool:
    """Return whether the student generates the targets of this step."""
    return bool(np.random.default_rng([clock.seed, clock.step, 0x0517]).random() < policy.rate)


def with_generated_targets(
    micro_batches: Sequence[MicroBatch],
    student: PreTrainedModel,
    policy: OnPolicy,
    clock: Clock,
    accelerator: Accelerator,
) -> list[MicroBatch]:
    """Return the micro-batches of a step with generated texts as targets, and their shares of the generated rows."""
    generated = []
    for number, micro_batch in enumerate(micro_batches):
        seed_generators(step_seed(clock.seed, clock.step, number, accelerator.process_index), accelerator.device)
        with accelerator.autocast():
            generated.append(_generated(student, micro_batch.batch, policy))
    rows = [_rows(batch, student, policy.drop_start) for batch in generated]
    total: Counter[Rows] = Counter()
    for one in rows:
        total.update(one)
    return [
        replace(
            micro_batch,
            batch=batch,
            share=dict(micro_batch.share) | {name: count / max(total[name], 1) for name, count in one.items()},
            cached=None,
        )
        for batch, one, micro_batch in zip(generated, rows, micro_batches, strict=True)
    ]


def _generated(student: PreTrainedModel, batch: Batch, policy: OnPolicy) -> Batch:
    """Return a batch with targets sampled from the student."""
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
    """The prompts (the tokens before the first scored one), padded on the left."""
    scored = inputs["labels"] != IGNORED
    lengths = torch.where(scored.any(1), scored.long().argmax(1), inputs["attention_mask"].sum(1))
    width = int(lengths.max())
    places = torch.arange(width, device=lengths.device) - (width - lengths)[:, None]
    real = places >= 0
    ids = inputs["input_ids"].gather(1, places.clamp(min=0)).masked_fill(~real, pad_id)
    return {"input_ids": ids, "attention_mask": real.long()}


def _joined(prompts: dict[str, Tensor], tokens: Tensor, real: Tensor, pad_id: int) -> dict[str, Tensor]:
    """Prompts followed by the generated tokens, padded on the right, with the generated tokens as labels."""
    ids = torch.cat([prompts["input_ids"], tokens], dim=1)
    mask = torch.cat([prompts["attention_mask"].bool(), real], dim=1)
    generated = torch.cat([torch.zeros_like(prompts["attention_mask"]).bool(), real], dim=1)
    # Real tokens first, in their order.
    order = (~mask).long().argsort(dim=1, stable=True)
    ids, mask, generated = (each.gather(1, order) for each in (ids, mask, generated))
    return {
        "input_ids": ids.masked_fill(~mask, pad_id),
        "attention_mask": mask.long(),
        "labels": ids.masked_fill(~generated, IGNORED),
    }


def _rows(batch: Batch, student: PreTrainedModel, drop_start: bool) -> dict[Rows, int]:
    """The numbers of rows of each kind of a generated batch."""
    mask, scored = batch.inputs["attention_mask"].sum(1), (batch.inputs["labels"] != IGNORED).sum(1)
    reads = kind_of(student.config) == "encoder-decoder"
    encoder = mask.cpu().numpy() if reads else None
    decoder = shown_rows((scored if reads else mask).cpu().numpy(), drop_start and reads)
    found: dict[Rows, int] = {"targets": int(scored.sum())}
    return found | counted(encoder, decoder)
