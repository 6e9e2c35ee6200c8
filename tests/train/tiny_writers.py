"""Tiny models that generate text, and made-up texts for them, ragged on both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    BartConfig,
    GPT2Config,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    T5Config,
)

from stillery.data.tokens.batches import Batch
from stillery.data.tokens.collate import collate_generation
from stillery.data.tokens.encode import Tokens
from stillery.data.tokens.encode_generation import GenerationTokens
from stillery.losses import Mixed
from stillery.models.family import kind_of, stack_sizes
from stillery.recipe import Clock, Recipe, Rows
from stillery.stacks import on_stacks
from stillery.train.loop import TextData
from stillery.train.microbatches import MicroBatch
from stillery.train.objective import Losses, Objective
from stillery.train.teacher import LiveTeacher

FAMILIES = ("t5", "bart", "gpt2", "llama")
PAD, VOCABULARY = 0, 40


def config_of(name: str, *, layers: int, width: int, heads: int) -> PreTrainedConfig:
    """No dropout; T5's heads are wider than their share, Llama's keys have half as many."""
    if name == "t5":
        return T5Config(
            vocab_size=VOCABULARY, d_model=width, d_kv=6, d_ff=24, num_layers=layers, num_heads=heads, dropout_rate=0.0,
            relative_attention_num_buckets=8, relative_attention_max_distance=6, decoder_start_token_id=PAD,
            pad_token_id=PAD,
        )  # fmt: skip
    if name == "bart":
        return BartConfig(
            vocab_size=VOCABULARY, d_model=width, encoder_layers=layers, decoder_layers=layers,
            encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=24, decoder_ffn_dim=24,
            max_position_embeddings=64, dropout=0.0, pad_token_id=PAD, bos_token_id=1, eos_token_id=2,
            decoder_start_token_id=2, forced_eos_token_id=2,
        )  # fmt: skip
    if name == "gpt2":
        return GPT2Config(
            vocab_size=VOCABULARY, n_embd=width, n_layer=layers, n_head=heads, n_positions=64, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
    return LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=heads // 2, intermediate_size=24, max_position_embeddings=64, bos_token_id=1,
        eos_token_id=2, pad_token_id=PAD,
    )  # fmt: skip


def writer(
    name: str, *, layers: int = 2, width: int = 16, heads: int = 2, seed: int = 0, eager: bool = False
) -> PreTrainedModel:
    """A model with random weights, biases and norms too."""
    config = config_of(name, layers=layers, width=width, heads=heads)
    auto: Any = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model: PreTrainedModel = auto.from_config(config, attn_implementation="eager" if eager else None).eval()
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def _tokens(lengths: np.ndarray, seed: int) -> Tokens:
    # No word twice: T5 hardly tells the places of one apart, and the direction from a word to itself is rounding.
    random = np.random.default_rng(seed)
    flat = np.concatenate([3 + random.permutation(VOCABULARY - 3)[:length] for length in lengths]).astype(np.int32)
    return Tokens(flat=flat, offsets=np.concatenate([[0], np.cumsum(lengths)]), types=None, truncated=0)


def texts(name: str, count: int = 8, seed: int = 0) -> TextData:
    """Sources of 2 to 11 tokens with targets of 1 to 6; for a decoder in one row, the source being the prompt."""
    random = np.random.default_rng(seed)
    sources, targets = random.integers(2, 12, count), random.integers(1, 7, count)
    whole = name in ("gpt2", "llama")
    tokens = GenerationTokens(
        ids=tuple(map(str, range(count))),
        source=_tokens(sources + targets if whole else sources, seed + 1),
        target=None if whole else _tokens(targets, seed + 2),
        prompt_lengths=sources if whole else None,
        cut_sources=0,
        cut_targets=0,
    )
    return TextData(tokens=tokens, pad_id=PAD)


class Lesson:
    """A recipe on a student and a teacher, and its losses on batches."""

    def __init__(
        self,
        recipe: Recipe,
        student: PreTrainedModel,
        teacher: PreTrainedModel,
        *,
        drop_start: bool = False,
        **stacks: Any,
    ) -> None:
        self.recipe = on_stacks(recipe, kind_of(student.config), **stacks)
        self.teacher = LiveTeacher(teacher, drop_start)
        self.objective = Objective(
            student, self.recipe.stages, teacher=stack_sizes(teacher.config), kind="text", seed=0, drop_start=drop_start
        )

    def losses(
        self,
        batch: Batch,
        share: dict[Rows, float] | None = None,
        mixed: Mixed | None = None,
        clock: Clock | None = None,
    ) -> Losses:
        clock = clock or Clock(stage_step=1, stage_steps=2)
        stage, plan = self.recipe.stages[clock.stage], self.objective.plan(clock)
        if mixed is None and stage.mixing is not None:
            mixed = Mixed(lam=0.3, partner=torch.arange(len(batch)).flip(0))
        shown = {"plain": self.teacher(batch.inputs, plan.teacher.get("plain", {}))}
        if mixed:
            shown["mixed"] = self.teacher(batch.inputs, plan.teacher["mixed"], mixed)
        micro_batch = MicroBatch(batch=batch, share=share or Whole(), mixed=mixed, places=torch.from_numpy(batch.index))
        return self.objective(plan, micro_batch, shown)


class Whole(dict):
    """All of a step's rows, of whatever kind."""

    def __missing__(self, kind: str) -> float:
        return 1.0


def batch_of(data: TextData, index: Any = None, pad_to: int = 1) -> Batch:
    return collate_generation(data.tokens, np.arange(len(data)) if index is None else np.asarray(index), PAD, pad_to)


def numbers(terms: dict[str, Tensor]) -> dict[str, float]:
    return {name: term.item() for name, term in terms.items()}
