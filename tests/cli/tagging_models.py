"""Tiny encoders to be made taggers, and files of sentences whose tags follow from their words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoModel, BertConfig, PreTrainedTokenizerBase, RobertaConfig, RobertaTokenizer

Sentence = tuple[list[str], list[str]]

FAMILIES = ("bert", "roberta")
TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
SMALL = ("--max-steps", 4, "--batch-size", 8, "--max-length", 32)

_NAMES = {"PER": ("Ada", "Grace Hopper", "Alan Turing"), "LOC": ("Oslo", "New York", "Vienna")}
_FRAMES = ("PER lives in LOC .", "in LOC , PER met PER .", "it rains in LOC", "nobody knows why .")


def tagged(count: int = 60) -> list[Sentence]:
    """Sentences that differ, with the tags of their names."""
    found = []
    for row in range(count):
        words, tags = [f"{row}"], ["O"]
        for place, word in enumerate(_FRAMES[row % 4].split()):
            names = _NAMES.get(word)
            parts = [word] if names is None else names[(row + place) % 3].split()
            words += parts
            tags += ["O"] if names is None else [f"{'I' if at else 'B'}-{word}" for at in range(len(parts))]
        found.append((words, tags))
    return found


def conll(path: Path, sentences: Sequence[Sentence]) -> Path:
    """A CoNLL file: a word and its tag on each line."""
    blocks = ["".join(f"{word}\t{tag}\n" for word, tag in zip(*one, strict=True)) for one in sentences]
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


def jsonl(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def _byte_level() -> PreTrainedTokenizerBase:
    """A tokenizer as RoBERTa's, of pieces that the sentences have."""
    trained = ByteLevelBPETokenizer()
    texts = (" " + " ".join(words) for words, _ in tagged())
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(texts, vocab_size=400, special_tokens=special, show_progress=False)
    model = json.loads(trained.to_str())["model"]
    tokenizer = RobertaTokenizer(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]])
    tokenizer.model_max_length = 60
    return tokenizer


def make_encoder(folder: Path, family: str, tokenizer: PreTrainedTokenizerBase, layers: int = 4) -> Path:
    """A tiny encoder with random weights, no head and no dropout; RoBERTa's tokenizer is of bytes."""
    if family == "roberta":
        tokenizer = _byte_level()
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": layers, "num_attention_heads": 4,
        "intermediate_size": 64, "max_position_embeddings": 64, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }  # fmt: skip
    torch.manual_seed(3)
    config = BertConfig(**shape) if family == "bert" else RobertaConfig(**shape, pad_token_id=1, type_vocab_size=1)
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
