"""A tiny teacher, students of it, and a few real sentences as tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from stillery.data.schema.examples import Examples
from stillery.data.tasks.load_task import load_task
from stillery.data.tokens.batches import Batch
from stillery.data.tokens.collate import collate
from stillery.data.tokens.encode import Tokens, tokenise
from stillery.models.family import Sizes, sizes
from stillery.models.load_model import Loaded, load_classifier
from stillery.models.student import StudentShape, build, student_sizes
from stillery.train.loop import TrainingData

StudentOf = Callable[..., PreTrainedModel]


def without_dropout(model: PreTrainedModel) -> PreTrainedModel:
    """The model with every dropout turned off, also in training mode."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "dropout_prob"):
            module.dropout_prob = 0.0
    model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.0
    return model


@pytest.fixture
def teacher(tiny_teacher: Path) -> Loaded:
    return load_classifier(str(tiny_teacher))


@pytest.fixture
def teacher_sizes(teacher: Loaded) -> Sizes:
    return sizes(teacher.model.config)


@pytest.fixture
def student_of(teacher: Loaded) -> StudentOf:
    def make(
        layers: int = 2, width: int | None = None, heads: int | None = None, init: str = "even"
    ) -> PreTrainedModel:
        wanted = student_sizes(StudentShape(layers=layers, width=width, heads=heads), teacher.model.config, "teacher")
        return without_dropout(build(teacher=teacher, source=teacher, wanted=wanted, init=init, seed=3).model)

    return make


@pytest.fixture(scope="session")
def sentences() -> Examples:
    return load_task("rotten-tomatoes").train.take(np.arange(0, 64 * 100, 100))


@pytest.fixture(scope="session")
def tokens(sentences: Examples, tokenizer) -> Tokens:
    return tokenise(sentences, tokenizer, 48)


@pytest.fixture(scope="session")
def data(sentences: Examples, tokens: Tokens) -> TrainingData:
    return TrainingData(examples=sentences, tokens=tokens, pad_id=0)


@pytest.fixture
def batch(sentences: Examples, tokens: Tokens) -> Batch:
    return collate(sentences, tokens, np.arange(0, 64, 8), 0)
