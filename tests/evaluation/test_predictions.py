from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from transformers import (
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedTokenizerBase,
)

from stillery.data.readers.files import read_batches
from stillery.data.schema.examples import Examples
from stillery.data.schema.labels import Labels
from stillery.data.tokens.encode import tokenise
from stillery.evaluation.predictions import predict_logits, probabilities, write_predictions


def logits_of(model, examples, tokenizer, **options) -> np.ndarray:
    tokens = tokenise(examples, tokenizer, 32, description="tokenise")
    return predict_logits(model, tokens, examples, pad_id=tokenizer.pad_token_id, description=None, **options)


def one_by_one(model, examples, tokenizer) -> np.ndarray:
    """Logits of each text alone, without any padding, by nothing but the model and the tokenizer."""
    model.eval()
    rows = []
    for row, text in enumerate(examples["text"].to_pylist()):
        second = examples["text_pair"][row].as_py() if "text_pair" in examples.columns else None
        inputs = tokenizer(text, second, truncation=True, max_length=32, return_tensors="pt")
        if not hasattr(model.config, "type_vocab_size"):
            inputs.pop("token_type_ids", None)
        with torch.no_grad():
            rows.append(model(**inputs).logits[0].numpy())
    return np.stack(rows)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 64])
def test_order_is_restored_and_neither_batches_nor_padding_change_logits(
    bert: BertForSequenceClassification, examples: Examples, tokenizer: PreTrainedTokenizerBase, batch_size: int
) -> None:
    found = logits_of(bert, examples, tokenizer, batch_size=batch_size)
    expected = one_by_one(bert, examples, tokenizer)
    assert found.dtype == np.float32
    assert np.ptp(expected, axis=0).min() > 0.1, "the texts must be told apart for this test to see their order"
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_pairs_of_texts(
    bert: BertForSequenceClassification, tokenizer: PreTrainedTokenizerBase, made: Callable[..., Examples]
) -> None:
    pairs = made(["a b", "c"], ["d", "e f g h i j k l"])
    np.testing.assert_allclose(logits_of(bert, pairs, tokenizer), one_by_one(bert, pairs, tokenizer), atol=1e-5)


def test_a_model_without_segments(examples: Examples, tokenizer: PreTrainedTokenizerBase) -> None:
    config = DistilBertConfig(vocab_size=len(tokenizer), dim=16, n_layers=1, n_heads=2, hidden_dim=32, num_labels=3)
    model = DistilBertForSequenceClassification(config)
    np.testing.assert_allclose(logits_of(model, examples, tokenizer), one_by_one(model, examples, tokenizer), atol=1e-5)


def test_each_module_gets_its_mode_back(
    bert: BertForSequenceClassification, examples: Examples, tokenizer: PreTrainedTokenizerBase
) -> None:
    bert.train()
    bert.bert.embeddings.eval()
    before = [module.training for module in bert.modules()]
    first = logits_of(bert, examples, tokenizer)
    assert [module.training for module in bert.modules()] == before
    np.testing.assert_array_equal(first, logits_of(bert, examples, tokenizer))
    bert.eval()
    logits_of(bert, examples, tokenizer)
    assert not bert.training


def test_a_model_can_train_after_it_was_evaluated(
    bert: BertForSequenceClassification, examples: Examples, tokenizer: PreTrainedTokenizerBase
) -> None:
    logits_of(bert, examples, tokenizer)
    bert(**tokenizer("good", return_tensors="pt")).logits.sum().backward()


def test_probabilities(three: Labels, number: Labels) -> None:
    rows = probabilities(np.array([[0.0, np.log(2), np.log(5)], [1000.0, 0.0, 0.0]]), three)
    np.testing.assert_allclose(rows, [[1 / 8, 2 / 8, 5 / 8], [1, 0, 0]], rtol=1e-6)
    np.testing.assert_array_equal(probabilities(np.array([[1.5], [-2]]), number), [[1.5], [-2]])


def test_parquet_of_a_classification(tmp_path: Path, examples: Examples, three: Labels) -> None:
    logits = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    path = tmp_path / "predictions.parquet"
    write_predictions(path, examples, three, logits, -logits)
    read = pq.read_table(path)
    assert {field.name: str(field.type) for field in read.schema} == {
        "id": "string",
        "label": "string",
        "prediction": "string",
        "probabilities": "list<element: float>",
        "teacher_prediction": "string",
        "teacher_probabilities": "list<element: float>",
    }
    rows = read.to_pydict()
    assert rows["id"] == list(examples.ids)
    assert rows["label"] == ["good", "bad", "bad", "good", "fair", "good", "bad"]
    assert rows["prediction"] == [three.names[best] for best in logits.argmax(axis=1)]
    assert rows["teacher_prediction"] == [three.names[worst] for worst in logits.argmin(axis=1)]
    np.testing.assert_array_equal(np.array(rows["probabilities"], np.float32), probabilities(logits, three))
    np.testing.assert_array_equal(np.array(rows["teacher_probabilities"], np.float32), probabilities(-logits, three))


def test_parquet_of_a_regression(tmp_path: Path, number: Labels, made: Callable[..., Examples]) -> None:
    scored = made(["a", "b"], labels=np.array([0.5, 2], dtype=np.float32))
    write_predictions(tmp_path / "a.parquet", scored, number, np.array([[1.25], [3.5]], dtype=np.float32))
    assert pq.read_table(tmp_path / "a.parquet").to_pydict() == {
        "id": ["row-0", "row-1"],
        "label": [0.5, 2.0],
        "prediction": [1.25, 3.5],
        "probabilities": [[1.25], [3.5]],
    }


def test_parquet_without_gold_labels(
    tmp_path: Path, three: Labels, number: Labels, made: Callable[..., Examples]
) -> None:
    bare = made(["a"])
    write_predictions(tmp_path / "a.parquet", bare, three, np.zeros((1, 3)))
    write_predictions(tmp_path / "b.parquet", bare, number, np.zeros((1, 1)))
    assert pq.read_table(tmp_path / "a.parquet")["label"].to_pylist() == [None]
    assert str(pq.read_schema(tmp_path / "a.parquet").field("label").type) == "string"
    assert str(pq.read_schema(tmp_path / "b.parquet").field("label").type) == "float"


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "csv.gz"])
def test_the_suffix_decides_the_format(tmp_path: Path, examples: Examples, three: Labels, suffix: str) -> None:
    path = tmp_path / f"predictions.{suffix}"
    write_predictions(path, examples, three, np.eye(3)[[0, 1, 2, 0, 1, 2, 0]])
    rows = [row for batch in read_batches(path) for row in batch.to_pylist()]
    assert [row["prediction"] for row in rows] == [three.names[index] for index in (0, 1, 2, 0, 1, 2, 0)]
    shares = [row["probabilities"] for row in rows]
    assert all(len(json.loads(one) if isinstance(one, str) else one) == 3 for one in shares)


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, examples: Examples, three: Labels, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "predictions.parquet"
    write_predictions(path, examples, three, np.zeros((7, 3)))
    before = path.read_bytes()

    def interrupted(writer, table) -> None:
        writer.file_handle.write(b"PAR1 half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(pq.ParquetWriter, "write_table", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_predictions(path, examples, three, np.ones((7, 3)))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_bar_is_on_stderr_and_changes_nothing(
    bert: BertForSequenceClassification,
    examples: Examples,
    tokenizer: PreTrainedTokenizerBase,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tokens = tokenise(examples, tokenizer, 32)
    found = predict_logits(bert, tokens, examples, pad_id=0, batch_size=2)
    again = predict_logits(bert, tokens, examples, pad_id=0, batch_size=2, description=None)
    np.testing.assert_array_equal(found, again)
    assert capsys.readouterr().out == ""
