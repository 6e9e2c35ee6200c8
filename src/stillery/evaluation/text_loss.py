"""The cross entropy of a model on target texts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from stillery.data.tokens.batches import in_order, padded_to
from stillery.data.tokens.collate import collate_generation
from stillery.data.tokens.encode_generation import GenerationTokens
from stillery.evaluation.inference_mode import device_of, evaluating
from stillery.ignored import IGNORED
from stillery.models.trace import trace
from stillery.progress import track

__all__ = ["token_loss"]


def token_loss(
    model: PreTrainedModel,
    tokens: GenerationTokens,
    *,
    pad_id: int,
    batch_size: int = 32,
    description: str | None = "evaluate",
) -> float:
    """The mean cross entropy of the target tokens, in nats, without prompts and padding.

    `description` is the title of the progress bar, None for none.
    """
    device = device_of(model)
    batches = in_order(tokens.lengths, batch_size)
    total, count = torch.zeros((), dtype=torch.float64), 0
    with evaluating(model), torch.inference_mode():
        for index in track(batches, description):
            inputs = collate_generation(tokens, index, pad_id, padded_to(device)).to(device).inputs
            outputs = trace(model, inputs)
            assert outputs.targets is not None
            # One text at a time: the logits of a whole batch in single precision would be the largest tensor of all.
            losses = [
                F.cross_entropy(row.float(), gold, ignore_index=IGNORED, reduction="sum")
                for row, gold in zip(outputs.logits, outputs.targets, strict=True)
            ]
            total += torch.stack(losses).double().sum().cpu()
            count += int(tokens.target_lengths[index].sum())
    return float(total) / max(count, 1)
