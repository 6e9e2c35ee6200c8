"""How likely models find texts, and that they keep nothing while they are asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    BartConfig,
    GPT2Config,
    PreTrainedModel,
    T5Config,
)

from stillery.data.tokens.encode import Tokens
from stillery.data.tokens.encode_generation import GenerationTokens
from stillery.evaluation.text_loss import token_loss

IDS: dict[str, Any] = {"vocab_size": 30, "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 1}


@pytest.fixture(params=["t5", "bart", "gpt2"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    torch.manual_seed(1)
    if request.param == "gpt2":
        return AutoModelForCausalLM.from_config(GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=40, **IDS))
    if request.param == "t5":
        config: Any = T5Config(
            d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0, **IDS
        )  # fmt: skip
    else:
        config = BartConfig(
            d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
            encoder_ffn_dim=16, decoder_ffn_dim=16, decoder_start_token_id=2, max_position_embeddings=40, **IDS,
        )  # fmt: skip
    return AutoModelForSeq2SeqLM.from_config(config)


def row_tokens(rows: list[list[int]]) -> Tokens:
    return Tokens(
        flat=np.concatenate(rows).astype(np.int32), offsets=np.cumsum([0, *map(len, rows)]), types=None, truncated=0
    )


def test_the_mean_over_target_tokens_and_no_cache(model: PreTrainedModel) -> None:
    sources, targets = [[5, 6, 7, 8], [9, 10], [11]], [[12, 2], [13, 14, 15, 2], [2]]
    reads = model.config.is_encoder_decoder
    whole = [source + target for source, target in zip(sources, targets, strict=True)]
    tokens = GenerationTokens(
        ids=("a", "b", "c"), source=row_tokens(sources if reads else whole),
        target=row_tokens(targets) if reads else None,
        prompt_lengths=None if reads else np.array([4, 2, 1]), cut_sources=0, cut_targets=0,
    )  # fmt: skip
    kept: list[Any] = []
    handle = model.base_model.register_forward_hook(lambda _, __, output: kept.append(output.past_key_values))
    found = token_loss(model, tokens, pad_id=0, batch_size=2, description=None)
    handle.remove()
    assert len(kept) == 2 and kept == [None, None]
    total = 0.0
    for source, target in zip(sources, targets, strict=True):
        if reads:
            inputs = {"input_ids": torch.tensor([source]), "labels": torch.tensor([target])}
        else:
            inputs = {
                "input_ids": torch.tensor([source + target]),
                "labels": torch.tensor([[-100] * len(source) + target]),
            }
        with torch.no_grad():
            total += model.eval()(**inputs).loss.item() * len(target)
    assert found == pytest.approx(total / 7, rel=1e-5)
