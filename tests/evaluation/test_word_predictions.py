"""Logits of words are those at their first pieces, whatever the batches; what was cut off has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import AutoModelForTokenClassification, BertConfig

from stillery.data.readers.files import read_batches
from stillery.data.tokens.encode_words import WordTokens, tokenise_words
from stillery.errors import UserError
from stillery.evaluation.word_predictions import NO_TAG, predict_words, predicted_tags, write_tags

SENTENCES = [["Schwarzenegger", "left"], ["a"] * 20, ["."], ["Peter", "Blackburn", "\u200b", "in", "Wuppertal"]]


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, num_labels=5,
        max_position_embeddings=32,
    )  # fmt: skip
    return AutoModelForTokenClassification.from_config(config)


@pytest.fixture
def words(tokenizer: Any) -> WordTokens:
    return tokenise_words(pa.array(SENTENCES, type=pa.list_(pa.large_string())), tokenizer, 12)


def test_logits_are_those_of_first_pieces(model: Any, words: WordTokens, tokenizer: Any) -> None:
    expected = []
    with torch.inference_mode():
        for sentence in SENTENCES:
            given = [word if word != "\u200b" else "[UNK]" for word in sentence]
            one = tokenizer(given, is_split_into_words=True, truncation=True, max_length=12, return_tensors="pt")
            logits = model.eval()(**one).logits[0].numpy()
            seen = one.word_ids(0)
            rows = [logits[seen.index(word)] if word in seen else np.full(5, np.nan) for word in range(len(sentence))]
            expected += rows
    model.train()
    for batch_size in (1, 2, 64):
        found = predict_words(model, words, pad_id=0, batch_size=batch_size, progress=False)
        np.testing.assert_allclose(found, np.array(expected), rtol=0, atol=1e-5)
    assert model.training
    tags = predicted_tags(found, words, 5)
    cut = np.isnan(np.array(expected)).any(axis=1)
    assert cut.sum() == 10 and (tags[cut] == NO_TAG).all()
    assert tags[~cut].tolist() == np.array(expected)[~cut].argmax(axis=1).tolist()


def test_outputs_that_are_no_tags(model: Any, words: WordTokens) -> None:
    logits = predict_words(model, words, pad_id=0, progress=False)
    with pytest.raises(UserError, match=r"outputs of shape \[28, 5\], the task needs 4 for each of 28 words"):
        predicted_tags(logits, words, 4)
    logits[[0, 25]] = np.nan
    with pytest.raises(UserError, match="not finite for 2 of 18 words"):
        predicted_tags(logits, words, 5)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_tags_are_written_beside_their_words(tmp_path: Path, suffix: str) -> None:
    tokens = pa.array([["a", "b"], ["c"]], type=pa.list_(pa.large_string()))
    offsets, gold, guess = np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([1, -1, 1])
    for right, teacher in ((gold, None), (None, gold)):
        path = tmp_path / f"tags{suffix}"
        write_tags(path, ["x", "y"], tokens, offsets, ["O", "B-A"], gold=right, guess=guess, teacher=teacher)
        found = pa.Table.from_batches(list(read_batches(path))).to_pydict()
        assert found["id"] == ["x", "y"] and found["tokens"] == [["a", "b"], ["c"]]
        assert found["prediction"] == [["B-A", None], ["B-A"]]
        names = [["O", "B-A"], ["B-A"]]
        assert found["tags"] == (names if teacher is None else [None, None])
        assert found.get("teacher_prediction") == (None if teacher is None else names)


def test_nothing_to_predict(model: Any, tokenizer: Any) -> None:
    empty = tokenise_words(pa.array([], type=pa.list_(pa.large_string())), tokenizer, 12)
    with pytest.raises(UserError, match="no examples"):
        predict_words(model, empty, pad_id=0, progress=False)
