"""`stillery export` of models that embed texts and of rerankers: what its gate measures, and what the files compute."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from csv_files import write_csv
from embedding_models import embedded, make_embedder, sentences, write_pairs
from scipy.stats import kendalltau
from tagging_models import make_encoder
from transformers import AutoConfig, AutoModelForSequenceClassification, BertConfig

import stillery
from stillery.deploy.onnx_model import OnnxModel

ort = pytest.importorskip("onnxruntime")

EXAMPLE = """
import runpy, sys
for name in ("torch", "transformers", "stillery"):
    sys.modules[name] = None
print(runpy.run_path("example.py")["vectors"].tolist())
"""


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_an_embedder_with_dense_module_and_normalisation(tokenizer: Any, tmp_path: Path, command: Any) -> None:
    """Its files give the embeddings of the sentence-transformers folder, and are scored like it."""
    model, out = make_embedder(tmp_path / "embedder", tokenizer, layers=1, size=24), tmp_path / "onnx"
    data = write_pairs(tmp_path / "pairs.csv", 40)
    done = command("export", model, "--onnx", "--int8", "--data", data, "--out", out, "--no-latency")
    assert done.code == 0, done.err
    record = read(out / "export.json")
    expected = embedded(model, sentences(6))
    assert expected.shape == (6, 24) and expected.norm(dim=1).tolist() == pytest.approx([1] * 6)
    cosines = {}
    for name in ("onnx", "int8"):
        file = out / record[name]["file"]
        texts = tokenizer(sentences(6), padding=True, truncation=True, max_length=32, return_tensors="pt")
        vectors = OnnxModel(file, BertConfig())(**texts).logits
        cosines[name] = torch.nn.functional.cosine_similarity(vectors, expected)
        assert vectors.norm(dim=1).tolist() == pytest.approx([1] * 6, abs=1e-5)
        assert record[name]["measure"] == "mean cosine" and record[name]["agreement"] >= 98
    assert cosines["onnx"].min() > 1 - 1e-6 and 0.98 < cosines["int8"].mean() < 1 - 1e-6
    # The table and the card say what was measured: a cosine, no share of predictions.
    shown = f"{record['int8']['agreement'] / 100:.4f}"
    (line,) = [line for line in done.out.splitlines() if line.startswith("mean cosine")]
    assert line.split() == ["mean", "cosine", "-", "1.0000", shown]
    card = (out / "README.md").read_text()
    assert f"| mean cosine | - | 1.0000 | {shown} |" in card and "largest element difference" in card
    assert "agreement" not in done.out + card and "logit" not in done.out + card.partition("## Use it")[0]

    scores = {}
    for name in (model, out, out / "model.int8.onnx"):
        done = command("evaluate", name, "--data", data, "--against", model, "--json")
        assert done.code == 0, done.err
        scores[name] = done.json
    assert scores[out]["metrics"] == pytest.approx(scores[model]["metrics"], abs=1e-3)
    assert scores[out]["teacher_cosine"] == pytest.approx(100, abs=1e-3)
    int8 = scores[out / "model.int8.onnx"]
    assert int8["teacher_cosine"] == pytest.approx(record["int8"]["agreement"], abs=1e-3)
    done = subprocess.run([sys.executable, "-c", EXAMPLE], cwd=out, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    alone = torch.tensor(json.loads(done.stdout.splitlines()[-1]))
    both = embedded(model, ["some text", "another text"])
    assert torch.nn.functional.cosine_similarity(alone, both).min() > 0.97


def test_the_gate_of_a_reranker_sees_ranks(tokenizer: Any, texts: list[str], tmp_path: Path) -> None:
    """Agreement is the mean over queries of the pairs of documents in the checkpoint's order, not a correlation."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(**sizes, num_labels=1, problem_type="regression", initializer_range=0.3)
    model = AutoModelForSequenceClassification.from_config(config)
    rows = [
        (query, texts[query], texts[10 + (4 * query + place) % 30], place % 3)
        for query in range(8)
        for place in range(5)
    ]
    rows.append((8, texts[8], texts[9], 1))
    data = write_csv(tmp_path / "pairs.csv", ("qid", "query", "document", "label"), rows)
    found = stillery.export(
        model, tokenizer=tokenizer, data=data, query="qid", out=tmp_path / "out", int8=True, min_agreement_int8=50,
        latency=False, quiet=True,
    )  # fmt: skip
    assert found.metric == "ndcg@10"
    record = found.record
    assert [record[name]["measure"] for name in ("onnx", "int8")] == ["rank agreement"] * 2
    assert record["onnx"]["agreement"] == 100
    assert "rank agreement" in str(found) and "a query's pairs of documents in the checkpoint's order" in str(found)
    # By Kendall's tau, from the logits of all pairs in one batch, as the scale of activations is a batch's.
    inputs = tokenizer([row[1] for row in rows], [row[2] for row in rows], padding=True, return_tensors="pt")
    with torch.no_grad():
        ours = model.eval()(**inputs).logits
    theirs = OnnxModel(tmp_path / "out" / "model.int8.onnx", config)(**inputs).logits
    of_queries = (one[:-1].view(8, 5).numpy() for one in (ours, theirs))
    taus = [kendalltau(one, two).statistic for one, two in zip(*of_queries, strict=True)]
    assert record["int8"]["agreement"] == pytest.approx(100 * (1 + np.mean(taus)) / 2, abs=1e-3)
    assert 50 < record["int8"]["agreement"] < 100


def test_segments_that_a_tokenizer_does_not_give(tmp_path: Path, tokenizer: Any, texts: list[str]) -> None:
    """Some RoBERTas have two token types, and a tokenizer without any; no file of theirs asks for them."""
    model = make_encoder(tmp_path / "roberta", "roberta", tokenizer, layers=1)
    config = AutoConfig.from_pretrained(model, type_vocab_size=2, num_labels=1, problem_type="regression")
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(model)
    data = write_csv(tmp_path / "scores.csv", ("text", "label"), [(text, place) for place, text in enumerate(texts)])
    found = stillery.export(
        model, data=data, out=tmp_path / "out", int8=True, min_agreement_int8=100, force=True, latency=False,
        quiet=True,
    )  # fmt: skip
    assert found.record["inputs"] == ["input_ids", "attention_mask"]
    tried = [one["setting"] for one in found.record["int8"]["tried"]]
    assert found.record["onnx"]["agreement"] > 99.99 and "1 of" in tried[3]
    done = subprocess.run([sys.executable, "example.py"], cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0 and "token_type_ids" not in (tmp_path / "out" / "example.py").read_text(), done.stderr
