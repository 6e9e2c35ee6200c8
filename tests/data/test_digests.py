"""Fingerprints and cache keys stand in run files and cache folders: they never change for data that is the same."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from reading import load, load_generation, load_generation_to_score, load_inputs, load_sources

from stillery.data.schema.examples import Examples, columns_of
from stillery.data.tokens import token_cache
from stillery.data.tokens.encode_generation import GenerationFormat
from stillery.data.tokens.token_cache import generation_token_key, token_key

DIGESTS: dict[str, Any] = json.loads((Path(__file__).parent / "digests.json").read_text())
"""Made by stillery 0.1, which had a class of its own for each kind of examples."""

IDS = ("a", "b", "c")
TEXTS, PAIRS, TARGETS = ["one film", "zwei ä", "three"], ["x", "", "zz"], ["x", "y", "z"]
REFERENCES = pa.array([["x"], ["y", "yy"], ["z"]], pa.list_(pa.large_string()))


def strings(values: list[str]) -> pa.Array:
    return pa.array(values, pa.large_string())


def labelled(pairs: bool, labels: Any = None) -> Examples:
    columns = columns_of(text=strings(TEXTS), text_pair=strings(PAIRS) if pairs else None)
    return Examples(ids=IDS, columns=columns, labels=labels, source="a.csv")


def paired(targets: bool, references: bool = False) -> Examples:
    columns = columns_of(
        source=strings(TEXTS),
        target=strings(TARGETS) if targets else None,
        references=REFERENCES if references else None,
    )
    return Examples(ids=IDS, columns=columns, source="a.jsonl")


def same(**examples: Examples | None) -> None:
    for name, some in examples.items():
        assert some is not None
        assert [some.fingerprint, some.text_fingerprint] == DIGESTS[name.replace("_", " ")], name


def test_examples() -> None:
    sliced = {"text": strings(TEXTS)[1:], "text_pair": strings(PAIRS)[1:]}
    same(
        classes=labelled(False, np.array([0, 1, 2])),
        pairs=labelled(True, np.array([1, 0, 1])),
        scores=labelled(True, np.array([0.5, 1, 2], np.float32)),
        several=labelled(False, np.array([[1, 0], [0, 0], [1, 1]], np.float32)),
        no_labels=labelled(True),
        slice=Examples(ids=IDS[1:], columns=sliced, source="s"),
        sources=paired(False),
        targets=paired(True),
        references=paired(True, True),
        taken_references=paired(True, True).take([2, 1]),
    )


def test_keys_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    # The modules that the cache has: transformers may have been imported again since, as another object.
    monkeypatch.setattr(token_cache, "transformers", SimpleNamespace(__version__="5"))
    monkeypatch.setattr(token_cache, "tokenizers", SimpleNamespace(__version__="1"))
    monkeypatch.setattr(token_cache, "described", lambda tokenizer: {"class": "made"})
    tokenizer: Any = SimpleNamespace(model_max_length=512)
    assert token_key(labelled(True), tokenizer, 64) == DIGESTS["token key"]
    assert token_key(labelled(False), tokenizer, 64) == DIGESTS["token key, no pairs"]
    asked: dict[str, Any] = {"max_source": 9, "max_target": 5, "prompt": "{source} :", "prefix": "say: "}
    for kind in ("encoder-decoder", "decoder"):
        key = generation_token_key(paired(True, True), tokenizer, GenerationFormat(kind=kind, **asked))
        assert key == DIGESTS[f"generation key, {kind}"]


def test_labelled_files(tmp_path: Path) -> None:
    for name, text, count in (("train", "text", 30), ("test", "other", 4)):
        rows = "".join(f"{text} {row},{'np'[row % 2]}\n" for row in range(count))
        (tmp_path / f"{name}.csv").write_text("text,label\n" + rows)
    folder, file = load(tmp_path), load(tmp_path / "train.csv")
    same(classification_train=folder.train, classification_dev=folder.dev, classification_test=folder.test)
    same(one_file_train=file.train, one_file_dev=file.dev, one_file_test=file.test, inputs=load_inputs(tmp_path))


def test_sources_and_targets(tmp_path: Path) -> None:
    rows = [{"source": f"s {row}", "target": [f"{row} a", f"{row} b"][: 1 + row % 2]} for row in range(30)]
    for name, some in (("train", rows), ("test", rows[:5])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    folder, file = load_generation(tmp_path), load_generation(tmp_path / "train.jsonl")
    same(generation_train=folder.train, generation_dev=folder.dev, generation_test=folder.test)
    same(one_generation_file_train=file.train, one_generation_file_dev=file.dev)
    same(one_generation_file_test=file.test, generation_inputs=load_sources(tmp_path))
    same(generation_scored=load_generation_to_score(tmp_path, split="train"))
