"""Tiny sentence embedders as sentence-transformers writes them, and embeddings computed with transformers alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from csv_files import write_csv
from safetensors.torch import load_file, save_file
from tagging_models import make_encoder
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerBase

SMALL = ("--max-steps", 6, "--batch-size", 8, "--max-length", 32, "--log-every", 1)

_ANIMALS = ("cat", "dog", "horse", "old bird", "young and hungry fish")
_DOINGS = ("sleeps", "runs in the garden", "looks at a man who reads", "eats")


def sentences(count: int = 80) -> list[str]:
    """Sentences of 5 to 14 tokens that differ."""
    return [
        f"the {_ANIMALS[row % 5]} number {row} {_DOINGS[row % 4]}{' today' * (row % 3)}" for row in range(count)
    ]  # fmt: skip


def write_texts(path: Path, count: int = 80) -> Path:
    path.write_text("".join(f"{text}\n" for text in sentences(count)), encoding="utf-8")
    return path


def write_pairs(path: Path, count: int = 60) -> Path:
    """A CSV of pairs of sentences, with a score that says how much they share."""
    texts = sentences(count)
    rows = []
    for row, text in enumerate(texts):
        other = texts[(3 * row + 1) % count]
        shared = set(text.split()) & set(other.split())
        rows.append((text, other, round(5 * len(shared) / len(set(text.split()) | set(other.split())), 2)))
    return write_csv(path, ("sentence1", "sentence2", "score"), rows)


def make_embedder(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    *,
    family: str = "bert",
    layers: int = 4,
    size: int | None = 24,
    pooling: str = "mean",
) -> Path:
    """A folder of sentence-transformers: a tiny encoder, pooling, a dense module with tanh if `size`, normalisation."""
    make_encoder(folder, family, tokenizer, layers)
    kinds = ["Transformer", "Pooling", *(["Dense"] if size else []), "Normalize"]
    places = ["", *(f"{place}_{kind}" for place, kind in enumerate(kinds) if place)]
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (kind, path) in enumerate(zip(kinds, places, strict=True))
    ]
    _write(folder / "modules.json", modules)
    modes = {f"pooling_mode_{name}": name.startswith(pooling) for name in ("cls_token", "mean_tokens", "max_tokens")}
    _write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32} | modes)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": 40, "do_lower_case": False})
    if size:
        described = {"in_features": 32, "out_features": size, "bias": True,
                     "activation_function": "torch.nn.modules.activation.Tanh"}  # fmt: skip
        _write(folder / "2_Dense" / "config.json", described)
        torch.manual_seed(5)
        weights = {"linear.weight": torch.randn(size, 32) / 4, "linear.bias": torch.randn(size) / 4}
        save_file(weights, folder / "2_Dense" / "model.safetensors")
    return folder


def embedded(folder: Path, texts: Sequence[str], max_length: int = 32) -> torch.Tensor:
    """The embeddings of texts by the files of a folder: transformers' encoder, and what the modules say."""
    tokenizer, encoder = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(list(texts), padding=True, truncation=True, max_length=max_length, return_tensors="pt")
    with torch.no_grad():
        states = encoder(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        vectors = states
        for module in json.loads((folder / "modules.json").read_text()):
            kind, place = module["type"].rpartition(".")[2], folder / module["path"]
            config = json.loads((place / "config.json").read_text()) if kind in ("Pooling", "Dense") else {}
            if kind == "Pooling" and config.get("pooling_mode_cls_token"):
                vectors = states[:, 0]
            elif kind == "Pooling" and config.get("pooling_mode_max_tokens"):
                vectors = (states - 1e9 * (1 - mask)).amax(1)
            elif kind == "Pooling":
                vectors = (states * mask).sum(1) / mask.sum(1)
            elif kind == "Dense":
                held = load_file(place / "model.safetensors")
                vectors = vectors @ held["linear.weight"].T + held["linear.bias"]
                vectors = vectors.tanh() if config["activation_function"].endswith("Tanh") else vectors
            elif kind == "Normalize":
                vectors = F.normalize(vectors, dim=-1)
    return vectors


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
