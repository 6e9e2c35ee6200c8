"""Real tiny models and real sentences, made once for a test session."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, PreTrainedTokenizerBase

from stillery.data.tasks.load_task import load_task
from stillery.models.load_model import load_tokenizer
from stillery.verbosity import Verbosity, verbosity_as

# The sizes of the models are so small that more threads only get in each other's way.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the user's cache out of the tests, in this process and those it starts."""
    os.environ["STILLERY_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    os.environ.pop("STILLERY_CACHE_LIMIT", None)


@pytest.fixture
def verbose() -> Iterator[None]:
    """Details are said: caches, pairs of layers, starts."""
    with verbosity_as(Verbosity.VERBOSE):
        yield


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerBase:
    """MiniLM's tokenizer."""
    return load_tokenizer("minilm-l6")


@pytest.fixture(scope="session")
def tiny_teacher(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerBase) -> Path:
    """A BERT of 4 layers x 32 with random weights and a head for negative and positive."""
    folder = tmp_path_factory.mktemp("models") / "tiny-teacher"
    torch.manual_seed(1)
    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        id2label={0: "negative", 1: "positive"},
        label2id={"negative": 0, "positive": 1},
    )
    model = AutoModelForSequenceClassification.from_config(config)
    # A new head says next to nothing; this one is as sure of itself as a trained one.
    torch.nn.init.normal_(model.classifier.weight, std=1.0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV of 160 real review sentences, columns text and label (negative, positive)."""
    examples = load_task("rotten-tomatoes").train
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        # The package sorts by label, so rows are taken from all over it.
        for row in range(0, 160 * 42, 42):
            writer.writerow([examples["text"][row].as_py(), ("negative", "positive")[examples.labels[row]]])
    return path


@pytest.fixture(scope="session")
def stillery() -> Run:
    """Run the command line in a process of its own, as a user does."""

    def run(*arguments: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "stillery", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=cwd,
            env=os.environ | environment,
            timeout=300,
        )

    return run
