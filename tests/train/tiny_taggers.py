"""Tiny models that tag words, and made-up sentences for them: ragged, with words of one to three pieces."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForTokenClassification, BertConfig, PreTrainedModel

from stillery.data.tokens.encode import Tokens
from stillery.data.tokens.encode_words import WordTokens, first_piece_labels
from stillery.train.trainable import WordData

PAD, VOCABULARY, TAGS = 0, 40, 5


def tagger(*, layers: int = 2, width: int = 16, heads: int = 2, seed: int = 0) -> PreTrainedModel:
    """A BERT without dropout whose weights are random, biases and norms too."""
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=24, max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        num_labels=TAGS, pad_token_id=PAD,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForTokenClassification.from_config(config).eval()
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def sentences(count: int = 32, seed: int = 0, *, tagged: bool = True, longest: int = 8) -> WordData:
    """Sentences of 1 to `longest` words between a first and a last token; of some the last words are cut off."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, longest + 1, count)
    sizes[0] = longest
    flat: list[int] = []
    first: list[int] = []
    offsets = [0]
    for size in sizes:
        flat.append(1)
        for word in range(size):
            cut = word > 0 and word == size - 1 and random.random() < 0.6
            first.append(-1 if cut else len(flat))
            flat += [] if cut else random.integers(3, VOCABULARY, random.integers(1, 4)).tolist()
        flat.append(2)
        offsets.append(len(flat))
    tokens = Tokens(flat=np.array(flat, dtype=np.int32), offsets=np.array(offsets), types=None, truncated=0)
    places = np.array(first)
    words = WordTokens(
        tokens=tokens, offsets=np.concatenate([[0], np.cumsum(sizes)]), first=places, cut=int((places < 0).sum()),
        unread=0,
    )  # fmt: skip
    tags = random.integers(0, TAGS, len(first))
    labels = first_piece_labels(words, tags if tagged else None)
    return WordData(ids=tuple(map(str, range(count))), words=words, labels=labels, pad_id=PAD)


def processes(process: int = 0, of: int = 1) -> Any:
    """What a process knows of itself and the others."""
    return SimpleNamespace(num_processes=of, process_index=process, device=torch.device("cpu"))
