"""Tiny models that generate text, in folders, pairs of texts for them, and the commands that train them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from csv_files import write_csv
from text_tokenizers import word_tokenizer
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    BartConfig,
    GPT2Config,
    LlamaConfig,
    T5Config,
)

FAMILIES = ("t5", "bart", "gpt2", "llama")
SMALL = ("--max-steps", 4, "--batch-size", 8, "--beams", 2, "--max-new-tokens", 8)
SHORT = ("--max-length", 16, "--max-target-length", 12)


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def make_writer(folder: Path, family: str, layers: int = 4, words: Sequence[str] = (), **changes: Any) -> Path:
    """A tiny model with random weights, in a folder of its own."""
    tokenizer = word_tokenizer(family, more=words)
    ids = {"vocab_size": len(tokenizer), "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    torch.manual_seed(4)
    if family == "t5":
        config = T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=layers, num_heads=2, decoder_start_token_id=0, **ids)
    elif family == "bart":
        config = BartConfig(
            d_model=16, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=2, encoder_ffn_dim=32,
            decoder_attention_heads=2, decoder_ffn_dim=32, max_position_embeddings=64, decoder_start_token_id=2, **ids,
        )  # fmt: skip
    elif family == "gpt2":
        config = GPT2Config(n_embd=16, n_layer=layers, n_head=2, n_positions=64, **ids | {"pad_token_id": None})
    else:
        config = LlamaConfig(
            hidden_size=16, intermediate_size=32, num_hidden_layers=layers, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=64, **ids,
        )  # fmt: skip
    for name, value in changes.items():
        setattr(config, name, value)
    auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    auto.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_pairs(path: Path) -> Path:
    """Sources, and as targets their words in the other order."""
    words = [[f"w{(7 * row + 3 * place) % 90}" for place in range(2 + row % 5)] for row in range(60)]
    rows = [(" ".join(some), " ".join(reversed(some))) for some in words]
    return write_csv(path, ("source", "target"), rows)


def ask(job: str, model: Path, pairs: Path, out: Path, *more: object) -> tuple[object, ...]:
    named = "--teacher" if job == "distill" else "--model"
    return (job, named, model, "--data", pairs, *SMALL, *SHORT, *more, "--out", out)
