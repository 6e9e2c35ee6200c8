"""What every side of the speed benchmark is given: the same texts, tokens, teacher and student, written once.

`prepare` writes the texts and the tokenizer, which need the packages of the extra `demo`; `made` makes the rest from
them, so that a machine without those packages can be given a prepared folder.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig

from stillery import methods
from stillery.jobs.config.settings import Distill, resolve
from stillery.jobs.distill import prepare_distill
from stillery.jobs.prepared import Prepared, tokenised
from stillery.models.quiet import quiet
from stillery.progress import quiet as say_nothing

LABELS = ("negative", "positive")
DEV = 64


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A teacher and the depth of its student; without `model` the teacher's weights are random."""

    layers: int
    width: int
    heads: int
    student: int
    model: str | None = None
    dropout: float = 0.1

    def __str__(self) -> str:
        weights = self.model or "random weights"
        return f"{self.layers} -> {self.student} layers x {self.width}, {weights}"


SHAPES = {
    "minilm": Shape(layers=6, width=384, heads=12, student=3, model="minilm-l6"),
    "minilm-random": Shape(layers=6, width=384, heads=12, student=3),
    "minilm-l12": Shape(layers=12, width=384, heads=12, student=6),
    "bert-base": Shape(layers=12, width=768, heads=12, student=6),
    "small": Shape(layers=4, width=32, heads=4, student=2),
    # Without dropout all sides should find the same losses in their first step.
    "tiny": Shape(layers=4, width=32, heads=4, student=2, dropout=0.0),
}


def prepare(folder: Path) -> None:
    """Write the film reviews and MiniLM's tokenizer, which has BERT's vocabulary, unless they are there."""
    if (folder / "tokenizer").is_dir():
        return
    from stillery.data.tasks.load_task import load_task
    from stillery.models.load_model import load_tokenizer

    train = load_task("rotten-tomatoes").train
    order = np.random.default_rng(0).permutation(len(train["text"]))
    rows = [(train["text"][int(row)].as_py(), LABELS[int(train.labels[row])]) for row in order]
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "texts.csv", rows)
    load_tokenizer("minilm-l6").save_pretrained(folder / "tokenizer")


def _write(path: Path, rows: list[tuple[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])


SST2 = ((0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1), (1, 1, 3, 7, 13, 26, 35, 52))
"""Shares of SST-2's 67,349 training sentences, and how many words those have at most."""


def as_short_as_sst2(texts: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The texts cut to as many words as SST-2's training sentences have, about 13 tokens where a review has 28."""
    shares = np.random.default_rng(0)
    for text, label in texts:
        yield " ".join(text.split()[: round(np.interp(shares.random(), *SST2))]), label


def different_texts(folder: Path, count: int) -> Iterator[tuple[str, str]]:
    """So many different texts: the reviews, and when they run out the first half of one with the second of another."""
    with (folder / "texts.csv").open(encoding="utf-8", newline="") as file:
        real = [(row["text"], row["label"]) for row in csv.DictReader(file)]
    yield from real[:count]
    halves = [(words[: len(words) // 2], words[len(words) // 2 :]) for words in (text.split() for text, _ in real)]
    for number in range(len(real), count):
        turn, row = divmod(number, len(real))
        first, second = halves[row][0], halves[(row + 7 * turn) % len(real)][1]
        yield " ".join([*first, *second]), real[row][1]


def made(folder: Path, name: str, examples: int, *, short: bool = False) -> Path:
    """The folder of a shape and a number of examples: teacher, student, data, tokens and losses."""
    place, shape = folder / f"{name}-{examples}{'-short' if short else ''}", SHAPES[name]
    if (place / "losses.json").is_file():
        return place
    shutil.rmtree(place, ignore_errors=True)
    texts = different_texts(folder, examples + DEV)
    rows = list(as_short_as_sst2(texts) if short else texts)
    _write(place / "data" / "train.csv", rows[DEV:])
    _write(place / "data" / "dev.csv", rows[:DEV])
    with quiet(), say_nothing():
        _teacher(shape, folder / "tokenizer", place / "teacher")
        runs = {method: _prepared(place, shape, method) for method in ("kd", "pkd")}
        _tokens(runs["kd"], place / "tokens.npz")
        runs["kd"].model.save_pretrained(place / "student")
        runs["kd"].tokenizer.save_pretrained(place / "student")
    losses = {method: _losses(run) for method, run in runs.items()}
    (place / "losses.json").write_text(json.dumps(losses, indent=2), encoding="utf-8")
    return place


def _teacher(shape: Shape, tokenizer: Path, place: Path) -> None:
    torch.manual_seed(0)
    named = {"id2label": dict(enumerate(LABELS)), "label2id": {label: number for number, label in enumerate(LABELS)}}
    if shape.model is not None:
        from stillery.models.model_folder import model_folder

        model = AutoModelForSequenceClassification.from_pretrained(model_folder(shape.model), **named)
    else:
        config = BertConfig(
            vocab_size=30522,
            hidden_size=shape.width,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            intermediate_size=4 * shape.width,
            hidden_dropout_prob=shape.dropout,
            attention_probs_dropout_prob=shape.dropout,
            **named,
        )
        model = AutoModelForSequenceClassification.from_config(config)
    model.save_pretrained(place)
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(place)


def _prepared(place: Path, shape: Shape, method: str) -> Prepared:
    values = {"teacher": str(place / "teacher"), "data": str(place / "data"), "method": method}
    return prepare_distill(resolve(Distill, values | {"layers": shape.student, "init": "first"}))


def _tokens(prepared: Prepared, path: Path) -> None:
    data = tokenised(prepared).train
    np.savez(path, flat=data.tokens.flat, offsets=data.tokens.offsets, labels=data.examples.labels, pad_id=data.pad_id)


def _losses(prepared: Prepared) -> dict[str, object]:
    """The weights of a recipe's losses and the layers it compares."""
    (stage,) = methods.build(prepared.run.method.method).stages
    pairs = [pair for pairs in prepared.pairs.values() for pair in pairs]
    return {
        "hard": stage.hard_weight,
        "soft": stage.prediction.weight,
        "temperature": stage.prediction.temperature,
        "layers": stage.matches[0].weight if stage.matches else 0.0,
        "pairs": pairs,
    }
